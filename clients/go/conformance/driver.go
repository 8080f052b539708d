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
	"slices"
	"strconv"
	"strings"
	"time"

	bccn "github.com/bccnd/bccnd/clients/go"
)

// A driver is the state of the script. Commands return the words after "ok".
type driver struct {
	options       bccn.Options
	bus           *bccn.Client
	events        chan string                     // notices about the connection, and of watches
	notices       chan []string                   // kind, count and code of each that nobody has asked for yet
	reports       bool                            // notices go where they go by default
	calls         chan call                       // of callbacks
	called        *feed                           // one of them
	callbacks     []*bccn.Subscription            // whose messages are events of recv
	subscriptions map[string][]*bccn.Subscription // by pattern
	streams       map[string]*feed                // of subscriptions, by pattern
	stream        *feed                           // the client's
	last          bccn.Message                    // that was printed
}

// A call is what a callback was called with, and the word of its event.
type call struct {
	word    string
	message bccn.Message
}

// A feed is a stream, or what callbacks are called with.
type feed struct {
	receive func(context.Context) (bccn.Message, error)
	held    *bccn.Message // its loss has been shown
	called  *bccn.Message // of a callback
	word    string        // of its event
}

type command struct {
	least, most int // arguments
	open        bool
	run         func(d *driver, words []string) ([]string, error)
}

var (
	errClosed      = &bccn.Error{Code: bccn.ErrClosed, Text: "there is no open client"}
	errInvalid     = &bccn.Error{Code: bccn.ErrInvalid, Text: "there is no such subscription"}
	errUsage       = &bccn.Error{Code: "usage", Text: "no such command, or wrong arguments"}
	errCancelled   = &bccn.Error{Code: "cancelled", Text: "the call was cancelled"}
	errUnsupported = &bccn.Error{Code: "unsupported", Text: "not in Go"}
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

func unsupported(*driver, []string) ([]string, error) { return nil, errUnsupported }

func nothing(err error) ([]string, error) { return nil, err }

var commands = map[string]command{
	"format": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Format = bccn.Format(words[0])
		return nil, nil
	}},
	"pack": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Pack = words[0] == "on"
		return nil, nil
	}},
	"separator": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Separator = bccn.Separator(words[0])
		return nil, nil
	}},
	"queue": {1, 3, false, (*driver).queue},
	"timeout": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Timeout = seconds(words[0])
		return nil, nil
	}},
	"echo": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.NoEcho = words[0] == "off"
		return nil, nil
	}},
	"reconnect": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.NoReconnect = words[0] == "off"
		return nil, nil
	}},
	"tap": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Tap = bccn.Tap(words[0])
		return nil, nil
	}},
	"wait": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Wait = seconds(words[0])
		return nil, nil
	}},
	"as": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.options.Name = words[0]
		return nil, nil
	}},
	"report": {1, 1, false, func(d *driver, words []string) ([]string, error) {
		d.reports = words[0] == "on"
		return nil, nil
	}},
	"matches": {3, 3, false, func(_ *driver, words []string) ([]string, error) {
		if bccn.Matches(words[0], words[1], bccn.Separator(words[2])) {
			return []string{"yes"}, nil
		}
		return []string{"no"}, nil
	}},
	"open": {0, 1, false, (*driver).open},
	"close": {0, 0, false, func(d *driver, _ []string) ([]string, error) {
		d.close()
		return nil, nil
	}},
	"fork":     {1, 1, false, unsupported},
	"dispatch": {0, 0, false, unsupported},
	"poll":     {1, 1, false, unsupported},
	"whoami": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		return []string{encoded([]byte(d.bus.Name()))}, nil
	}},
	"name": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		err := d.bus.SetName(background, words[0])
		return []string{encoded([]byte(d.bus.Name()))}, err
	}},
	"sub": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		_, err := d.subscribe(background, words[0])
		return nil, err
	}},
	"cancel": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		ctx, cancel := context.WithCancel(background)
		defer time.AfterFunc(seconds(words[1]), cancel).Stop()
		_, err := d.subscribe(ctx, words[0])
		if errors.Is(err, context.Canceled) {
			err = errCancelled
		}
		return nil, err
	}},
	"callback": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		s, err := d.subscribe(background, words[0], d.callback("call"))
		if err == nil {
			d.callbacks = append(d.callbacks, s)
		}
		return nil, err
	}},
	"stream": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		s, err := d.subscribe(background, words[0])
		if err == nil {
			d.streams[words[0]] = &feed{receive: s.Receive}
		}
		return nil, err
	}},
	"take": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		own := d.streams[words[0]]
		if own == nil {
			return nil, errInvalid
		}
		event, err := d.event(own, "msg", seconds(words[1]))
		if event == nil && err == nil {
			event = []string{"timeout"}
		}
		return event, err
	}},
	"unsub": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		all := d.subscriptions[words[0]]
		if len(all) == 0 {
			return nil, errInvalid
		}
		last := len(all) - 1
		d.subscriptions[words[0]] = all[:last]
		return nothing(all[last].Close(background))
	}},
	"listen": {0, 1, true, func(d *driver, words []string) ([]string, error) {
		if len(words) == 0 {
			return nothing(d.bus.Listen(background))
		}
		return nothing(d.bus.Listen(background, d.callback(words[0])))
	}},
	"control": {1, 2, true, func(d *driver, words []string) ([]string, error) {
		answer, err := d.bus.Control(background, words[0], strings.Join(words[1:], ""))
		return []string{encoded([]byte(answer))}, err
	}},
	"notices": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		var all []string
		for {
			select {
			case notice := <-d.notices:
				all = append(all, notice...)
			default:
				return all, nil
			}
		}
	}},
	"await": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		message, err := d.bus.Receive(background)
		return d.wordsOf("msg", message), err
	}},
	"origin": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		words := []string{strconv.FormatInt(d.last.Time.UnixNano(), 10), encoded(d.last.Datagram)}
		if d.last.Interface != "" {
			words = append(words, encoded([]byte(d.last.Interface)))
		}
		return words, nil
	}},
	"ask": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		reply, err := d.bus.Request(background, words[0], []byte(words[1]))
		return []string{encoded(reply.Payload)}, err
	}},
	"lost": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		return []string{strconv.FormatUint(d.bus.Lost(), 10)}, nil
	}},
	"version": {0, 0, false, func(*driver, []string) ([]string, error) {
		return []string{encoded([]byte(bccn.Version))}, nil
	}},
	"status": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		status, err := d.bus.Status(background)
		return []string{encoded(status)}, err
	}},
	"clients": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		rows, err := d.bus.Clients(background)
		return []string{encoded(rows)}, err
	}},
	"sources": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		rows, err := d.bus.Sources(background)
		return []string{encoded(rows)}, err
	}},
	"datagram": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.SendDatagram(background, []byte(words[0])))
	}},
	"watch": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		events := d.events
		return nothing(d.bus.Watch(background, words[0], func(pattern string, wanted bool) {
			answer := "no"
			if wanted {
				answer = "yes"
			}
			events <- "wanted " + encoded([]byte(pattern)) + " " + answer
		}))
	}},
	"unwatch": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Unwatch(background, words[0]))
	}},
	"heartbeat": {1, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Heartbeat(background, seconds(words[0]), strings.Join(words[1:], "")))
	}},
	"pub": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.Publish(background, words[0], []byte(words[1])))
	}},
	"pub-to": {2, 2, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.PublishTo(background, words[0], []byte(words[1])))
	}},
	"pub-all": {1, 1, true, func(d *driver, words []string) ([]string, error) {
		return nothing(d.bus.PublishAll(background, []byte(words[0])))
	}},
	"barrier": {0, 0, true, func(d *driver, _ []string) ([]string, error) {
		return nothing(d.bus.Barrier(background))
	}},
	"flood":   {2, 3, true, (*driver).flood},
	"recv":    {1, 1, true, (*driver).receive},
	"count":   {2, 2, true, (*driver).count},
	"request": {3, 4, true, (*driver).request},
	"serve":   {2, 4, true, (*driver).serve},
}

func (d *driver) queue(words []string) ([]string, error) {
	for _, word := range words {
		switch setting, value, _ := strings.Cut(word, "="); setting {
		case "packets":
			d.options.Queue.Packets = number(value)
		case "bytes":
			d.options.Queue.Bytes = number(value)
		case "policy":
			d.options.Queue.Policy = bccn.Policy(value)
		default:
			return nil, errUsage
		}
	}
	return nil, nil
}

func (d *driver) open(words []string) ([]string, error) {
	d.close()
	events, notices := make(chan string, eventsLimit), make(chan []string, eventsLimit)
	options := d.options
	options.OnNotice = func(notice bccn.Notice) {
		code := "%"
		if known := (*bccn.Error)(nil); errors.As(notice.Err, &known) {
			code = string(known.Code)
		}
		select {
		case notices <- []string{string(notice.Kind), strconv.FormatUint(notice.Count, 10), code}:
		default: // of very many
		}
		if notice.Kind == bccn.NoticeDisconnected || notice.Kind == bccn.NoticeReconnected {
			events <- string(notice.Kind)
		}
	}
	if d.reports {
		options.OnNotice = nil
	}
	bus, err := bccn.Open(background, strings.Join(words, ""), options)
	if err != nil {
		return nil, err
	}
	*d = driver{
		options:       d.options,
		bus:           bus,
		events:        events,
		notices:       notices,
		reports:       d.reports,
		calls:         make(chan call, eventsLimit),
		subscriptions: map[string][]*bccn.Subscription{},
		streams:       map[string]*feed{},
		called:        &feed{},
		stream:        &feed{receive: bus.Receive},
	}
	return []string{encoded([]byte(bus.Name()))}, nil
}

// callback makes each message an event of recv, which begins with the word.
func (d *driver) callback(word string) bccn.SubscribeOption {
	calls := d.calls
	return bccn.Callback(func(message bccn.Message) { calls <- call{word, message} })
}

func (d *driver) close() {
	if d.bus != nil {
		d.bus.Close()
	}
	d.bus = nil
}

func (d *driver) subscribe(
	ctx context.Context, pattern string, options ...bccn.SubscribeOption,
) (*bccn.Subscription, error) {
	s, err := d.bus.Subscribe(ctx, pattern, options...)
	if err == nil {
		d.subscriptions[pattern] = append(d.subscriptions[pattern], s)
	}
	return s, err
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
		if err := batch.Publish(background, words[0], payload); err != nil {
			return nil, err
		}
	}
	return nil, batch.Flush(background)
}

// receive looks for messages first: a notice about the connection may arrive before the messages that precede it are
// read. It says that nothing has come only if no callback has anything in hand.
func (d *driver) receive(words []string) ([]string, error) {
	if event, err := d.event(d.called, d.called.word, 0); event != nil || err != nil {
		return event, err
	}
	for deadline := time.Now().Add(seconds(words[0])); ; {
		event, err := d.event(d.stream, "msg", min(time.Until(deadline), 20*time.Millisecond))
		if event != nil || err != nil {
			return event, err
		}
		over := time.Now().After(deadline)
		called := slices.ContainsFunc(d.callbacks, func(s *bccn.Subscription) bool { return s.Pending() > 0 })
		select {
		case called := <-d.calls:
			d.called.called, d.called.word = &called.message, called.word
			return d.event(d.called, called.word, 0)
		case event := <-d.events:
			return []string{event}, nil
		default:
		}
		if over && !called {
			return []string{"timeout"}, nil
		}
	}
}

// event returns the next event of a feed in time, or nothing. With a message to show, its loss comes first.
func (d *driver) event(f *feed, word string, wait time.Duration) ([]string, error) {
	if f.held == nil {
		message, err := f.next(wait)
		if err != nil || message == nil {
			return nil, err
		}
		if f.held = message; message.Lost > 0 {
			return []string{"lost", strconv.FormatUint(message.Lost, 10)}, nil
		}
	}
	message := *f.held
	f.held = nil
	return d.wordsOf(word, message), nil
}

func (f *feed) next(wait time.Duration) (*bccn.Message, error) {
	if message := f.called; message != nil {
		f.called = nil
		return message, nil
	}
	if f.receive == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(background, wait)
	defer cancel()
	message, err := f.receive(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, nil
	}
	return &message, err
}

func (d *driver) wordsOf(word string, message bccn.Message) []string {
	d.last = message
	words := []string{word, encoded([]byte(message.Channel)), encoded(message.Payload)}
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
	if len(words) == 3 {
		reply, err := d.bus.Request(ctx, words[0], []byte(words[1]))
		return []string{encoded(reply.Payload)}, err
	}
	var found []string
	for reply, err := range d.bus.RequestMany(ctx, words[0], []byte(words[1]), number(words[3])) {
		if err != nil {
			return nil, err
		}
		found = append(found, encoded(reply.Payload))
	}
	return found, nil
}

func (d *driver) serve(words []string) ([]string, error) {
	if len(words) == 4 {
		return d.serveLater(number(words[0]), seconds(words[1]), words[2])
	}
	if len(words) == 3 {
		return d.servePattern(number(words[0]), seconds(words[1]), words[2])
	}
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
			if err := request.Reply(background, replyTo(request)); err != nil {
				return nil, err
			}
			served++
		}
	}
	return []string{strconv.Itoa(served)}, nil
}

func replyTo(request *bccn.Request) []byte { return append([]byte("re:"), request.Payload...) }

// servePattern has the handler return each reply, but the last: it sends that itself, so that it has been sent.
func (d *driver) servePattern(most int, wait time.Duration, pattern string) ([]string, error) {
	served, results := 0, make(chan error, most)
	s, err := d.bus.Serve(background, pattern, func(request *bccn.Request) []byte {
		if served++; served < most {
			results <- nil
			return replyTo(request)
		}
		if served == most {
			results <- request.Reply(background, replyTo(request))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	count := 0
	for quiet := false; count < most && !quiet; {
		select {
		case err := <-results:
			if err != nil {
				return nil, err
			}
			count++
		case <-time.After(wait):
			quiet = true
		}
	}
	return []string{strconv.Itoa(count)}, s.Close(background)
}

// serveLater replies to each request when its handler has returned.
func (d *driver) serveLater(most int, wait time.Duration, pattern string) ([]string, error) {
	served, later := 0, make(chan *bccn.Request, most)
	s, err := d.bus.Serve(background, pattern, func(request *bccn.Request) []byte {
		later <- request
		return nil
	})
	if err != nil {
		return nil, err
	}
	for ; served < most; served++ {
		select {
		case request := <-later:
			for s.Pending() > 0 { // the handler has not returned
				time.Sleep(time.Millisecond)
			}
			if err := request.Reply(background, replyTo(request)); err != nil {
				return nil, err
			}
			continue
		case <-time.After(wait):
		}
		break
	}
	return []string{strconv.Itoa(served)}, s.Close(background)
}
