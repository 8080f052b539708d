// The driver of the Go client for the conformance suite (clients/CONFORMANCE.md).
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"bccn"
)

// A driver is the state of the script. Commands return the words after "ok".
type driver struct {
	options bccn.Options
	bus     *bccn.Client
	events  chan string
	held    *bccn.Message // the loss before it is printed, and the message not yet
}

type command struct {
	least, most int // arguments
	open        bool
	run         func(d *driver, words []string) ([]string, error)
}

var (
	errClosed      = &bccn.Error{Code: bccn.Closed, Text: "there is no open client"}
	errUsage       = &bccn.Error{Code: "usage", Text: "no such command, or wrong arguments"}
	errCancelled   = &bccn.Error{Code: "cancelled", Text: "the call was cancelled"}
	errUnsupported = &bccn.Error{Code: "unsupported", Text: "a Go program cannot fork"}
)

const eventsLimit = 1024

var background = context.Background()

func main() {
	d := &driver{}
	lines := bufio.NewReader(os.Stdin)
	for {
		line, err := lines.ReadString('\n')
		words := strings.Split(strings.TrimSuffix(line, "\n"), " ")
		if err != nil || words[0] == "exit" {
			break
		}
		answer, err := d.obey(words[0], words[1:])
		if err != nil {
			code := bccn.Code("other")
			if known := (*bccn.Error)(nil); errors.As(err, &known) {
				code = known.Code
			}
			fmt.Println("error", code, encoded([]byte(err.Error())))
			continue
		}
		fmt.Println(strings.Join(append([]string{"ok"}, answer...), " "))
	}
	d.close()
}

func (d *driver) obey(name string, words []string) ([]string, error) {
	c, known := commands[name]
	if !known || len(words) < c.least || len(words) > c.most {
		return nil, errUsage
	}
	if c.open && d.bus == nil {
		return nil, errClosed
	}
	for i, word := range words {
		decoded, err := url.PathUnescape(word)
		if word != "%" && err != nil {
			return nil, errUsage
		}
		words[i] = decoded
	}
	return c.run(d, words)
}

func encoded(data []byte) string {
	if len(data) == 0 {
		return "%"
	}
	var word bytes.Buffer
	for _, b := range data {
		if b > ' ' && b <= '~' && b != '%' {
			word.WriteByte(b)
		} else {
			fmt.Fprintf(&word, "%%%02X", b)
		}
	}
	return word.String()
}

func seconds(word string) time.Duration {
	number, _ := strconv.ParseFloat(word, 64)
	return time.Duration(number * float64(time.Second))
}

func number(word string) int {
	value, _ := strconv.Atoi(word)
	return value
}

func within(word string) (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, seconds(word))
}

func nothing(err error) ([]string, error) { return nil, err }

var commands = map[string]command{
	"format": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Full = words[0] == "full"
		return nil, nil
	}},
	"pack": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Pack = words[0] == "on"
		return nil, nil
	}},
	"separator": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Separator = words[0]
		return nil, nil
	}},
	"queue": {1, 3, false, func(d *driver, words []string) ([]string, error) {
		d.options.Queue = strings.Join(words, " ")
		return nil, nil
	}},
	"timeout": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Timeout = seconds(words[0])
		return nil, nil
	}},
	"open": {0, 1, false, (*driver).open},
	"close": {0, 0, false, func(d *driver, _ []string) ([]string, error) {
		d.close()
		return nil, nil
	}},
	"fork": {1, 1, false, func(*driver, []string) ([]string, error) { return nil, errUnsupported }},
	"whoami": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		name, err := d.bus.Whoami(background)
		return []string{encoded([]byte(name))}, err
	}},
	"name": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		err := d.bus.SetName(background, words[0])
		return []string{encoded([]byte(d.bus.Name()))}, err
	}},
	"sub": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Subscribe(background, words[0]))
	}},
	"cancel": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		ctx, cancel := context.WithCancel(background)
		defer time.AfterFunc(seconds(words[1]), cancel).Stop()
		err := d.bus.Subscribe(ctx, words[0])
		if errors.Is(err, context.Canceled) {
			err = errCancelled
		}
		return nil, err
	}},
	"unsub": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Unsubscribe(background, words[0]))
	}},
	"listen": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		return nothing(d.bus.Listen(background))
	}},
	"heartbeat": {1, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Heartbeat(background, seconds(words[0]), strings.Join(words[1:], "")))
	}},
	"pub": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Publish(words[0], []byte(words[1])))
	}},
	"pub-to": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.SendTo(words[0], []byte(words[1])))
	}},
	"pub-all": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.SendAll([]byte(words[0])))
	}},
	"barrier": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		return nothing(d.bus.Barrier(background))
	}},
	"flood":   {2, 3, true, (*driver).flood},
	"recv":    {1, 1, true, (*driver).receive},
	"count":   {2, 2, true, (*driver).count},
	"request": {3, 4, true, (*driver).request},
	"serve":   {2, 2, true, (*driver).serve},
}

func (d *driver) open(words []string) ([]string, error) {
	d.close()
	events := make(chan string, eventsLimit)
	d.events = events
	options := d.options
	options.OnNotice = func(notice bccn.Notice) {
		if notice.Kind == "disconnected" || notice.Kind == "reconnected" {
			events <- notice.Kind
		}
	}
	bus, err := bccn.Open(strings.Join(words, ""), options)
	if err != nil {
		return nil, err
	}
	d.bus = bus
	return []string{encoded([]byte(bus.Name()))}, nil
}

func (d *driver) close() {
	if d.bus != nil {
		d.bus.Close()
	}
	d.bus, d.held = nil, nil
}

func (d *driver) flood(words []string) ([]string, error) {
	batch, size := d.bus.Batch(), 0
	if len(words) > 2 {
		size = number(words[2])
	}
	for i := 1; i <= number(words[1]); i++ {
		payload := strconv.AppendInt(make([]byte, 0, size+20), int64(i), 10)
		for len(payload) < size {
			payload = append(payload, '.')
		}
		if err := batch.Publish(words[0], payload); err != nil {
			return nil, err
		}
	}
	return nil, batch.Flush()
}

// receive looks for messages first: a notice about the connection may arrive before the messages that precede it are
// read.
func (d *driver) receive(words []string) ([]string, error) {
	if d.held != nil {
		message := *d.held
		d.held = nil
		return wordsOf(message), nil
	}
	for deadline := time.Now().Add(seconds(words[0])); ; {
		ctx, cancel := context.WithDeadline(background, deadline)
		if slice := time.Now().Add(20 * time.Millisecond); slice.Before(deadline) {
			ctx, cancel = context.WithDeadline(background, slice)
		}
		message, err := d.bus.Receive(ctx)
		cancel()
		if err == nil && message.Lost > 0 {
			d.held = &message
			return []string{"lost", strconv.FormatUint(message.Lost, 10)}, nil
		}
		if err == nil {
			return wordsOf(message), nil
		}
		if !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		select {
		case event := <-d.events:
			return []string{event}, nil
		default:
		}
		if time.Now().After(deadline) {
			return []string{"timeout"}, nil
		}
	}
}

func wordsOf(message bccn.Message) []string {
	words := []string{"msg", encoded([]byte(message.Channel)), encoded(message.Payload)}
	if message.Peer != "" {
		words = append(words, encoded([]byte(message.Src)), strconv.FormatUint(message.Seq, 10),
			encoded([]byte(message.Peer)), encoded([]byte(message.Verdict)))
	}
	return words
}

func (d *driver) count(words []string) ([]string, error) {
	received, lost, last := 0, uint64(0), []byte(nil)
	for received < number(words[0]) {
		ctx, cancel := within(words[1])
		message, err := d.bus.Receive(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		received, lost, last = received+1, lost+message.Lost, message.Payload
	}
	return []string{strconv.Itoa(received), strconv.FormatUint(lost, 10), encoded(last)}, nil
}

func (d *driver) request(words []string) ([]string, error) {
	ctx, cancel := within(words[2])
	defer cancel()
	most := 1
	if len(words) > 3 {
		most = number(words[3])
	}
	answers, err := d.bus.RequestMany(ctx, words[0], []byte(words[1]), most)
	found := make([]string, len(answers))
	for i, answer := range answers {
		found[i] = encoded(answer.Payload)
	}
	return found, err
}

func (d *driver) serve(words []string) ([]string, error) {
	served := 0
	for served < number(words[0]) {
		ctx, cancel := within(words[1])
		message, err := d.bus.Receive(ctx)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			return nil, err
		}
		if request, ok := d.bus.AsRequest(message); ok {
			if err := request.Reply(append([]byte("re:"), request.Payload...)); err != nil {
				return nil, err
			}
			served++
		}
	}
	return []string{strconv.Itoa(served)}, nil
}
