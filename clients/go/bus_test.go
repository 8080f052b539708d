package bccn

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// These tests cover what only Go has: goroutines, channels, contexts, subscriptions that are values. They need the daemon
// at $BCCN_SOCKET. The conformance suite tests the rest through the driver, as in every language
// (clients/CONFORMANCE.md).

const patience = 60 * time.Second

func TestMain(m *testing.M) {
	if flag.Parse(); os.Getenv("BCCN_SOCKET") == "" {
		_ = flag.Set("test.skip", "^Example") // they need a daemon, too
	}
	os.Exit(m.Run())
}

func open(t *testing.T, options Options) *Client {
	t.Helper()
	if os.Getenv("BCCN_SOCKET") == "" {
		t.Skip("no BCCN_SOCKET: these tests need a daemon")
	}
	bus, err := Open(within(t, patience), "", options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	return bus
}

func within(t *testing.T, duration time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), duration)
	t.Cleanup(cancel)
	return ctx
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

func subscribe(t *testing.T, bus *Client, pattern string, options ...SubscribeOption) *Subscription {
	t.Helper()
	subscription, err := bus.Subscribe(within(t, patience), pattern, options...)
	if err != nil {
		t.Fatal(err)
	}
	return subscription
}

// expect receives messages with these texts, and nothing more after a barrier.
func expect(t *testing.T, receive func(context.Context) (Message, error), texts ...string) {
	t.Helper()
	for _, text := range texts {
		message, err := receive(within(t, patience))
		must(t, err)
		same(t, message.Text(), text)
	}
	if message, err := receive(within(t, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(message, err)
	}
}

func TestManyGoroutinesShareAClient(t *testing.T) {
	const publishers, receivers, messages = 8, 4, 500
	bus := open(t, Options{Queue: Queue{Packets: 10000}})
	ctx := within(t, patience)
	subscribe(t, bus, "go/many")
	var work sync.WaitGroup
	for i := range publishers {
		work.Add(1)
		go func() {
			defer work.Done()
			for n := range messages {
				must(t, bus.Publish(ctx, "go/many", []byte(strconv.Itoa(i*messages+n))))
				if n%100 == 0 {
					must(t, bus.Barrier(ctx))
					other, err := bus.Subscribe(ctx, fmt.Sprint("go/other/", i))
					must(t, err)
					must(t, other.Close(ctx))
				}
			}
		}()
	}
	var mu sync.Mutex
	seen := map[string]int{}
	all, done := context.WithCancel(ctx)
	defer done()
	for range receivers {
		work.Add(1)
		go func() {
			defer work.Done()
			for {
				message, err := bus.Receive(all)
				if err != nil {
					return
				}
				mu.Lock()
				if seen[message.Text()]++; len(seen) == publishers*messages {
					done()
				}
				mu.Unlock()
			}
		}()
	}
	work.Wait()
	for text, times := range seen {
		if times != 1 {
			t.Errorf("%s came %d times", text, times)
		}
	}
	same(t, len(seen), publishers*messages)
}

func TestMessagesComeThroughAChannel(t *testing.T) {
	bus := open(t, Options{})
	ctx := within(t, patience)
	subscribe(t, bus, "go/channel")
	for i := range 3 {
		must(t, bus.Publish(ctx, "go/channel", []byte(strconv.Itoa(i))))
	}
	for i := range 3 {
		select {
		case message := <-bus.Messages():
			same(t, message.Text(), strconv.Itoa(i))
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	must(t, bus.Publish(ctx, "go/channel", []byte("nobody takes it")))
	must(t, bus.Barrier(ctx))
	must(t, bus.Close())
	for range bus.Messages() { // at most one more message comes, and then the channel is closed
	}
}

func TestASubscriptionIsAStreamOnceItIsAsked(t *testing.T) {
	bus := open(t, Options{})
	ctx := within(t, patience)
	a, b := subscribe(t, bus, "go/a/*"), subscribe(t, bus, "go/b")
	subscribe(t, bus, "go/a/shared")
	publish := func(n string) {
		for _, channel := range []string{"go/a/own", "go/b", "go/a/shared"} {
			must(t, bus.Publish(ctx, channel, []byte(channel[3:]+n)))
		}
		must(t, bus.Barrier(ctx))
	}
	publish("1")
	expect(t, a.Receive, "a/own1", "a/shared1") // from now on it has a stream of its own
	publish("2")
	expect(t, bus.Receive, "b1", "a/shared1", "b2", "a/shared2") // another subscription has those that are shared
	expect(t, a.Receive, "a/own2", "a/shared2")
	expect(t, b.Receive)
	publish("3")
	same(t, a.Pending(), 2)
	expect(t, bus.Receive, "a/shared3")
	expect(t, b.Receive, "b3")
	must(t, a.Close(ctx))
	must(t, a.Close(ctx))
	if _, err := a.Receive(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	for message := range a.Messages() {
		t.Error(message)
	}
	publish("4")
	expect(t, bus.Receive, "a/shared4")
	expect(t, b.Receive, "b4")
}

func TestASlowCallbackHoldsNobodyElse(t *testing.T) {
	bus := open(t, Options{})
	ctx := within(t, patience)
	slow, fast := make(chan string), make(chan string, 10)
	s := subscribe(t, bus, "go/>", Callback(func(message Message) { slow <- message.Text() }))
	subscribe(t, bus, "go/x", Callback(func(message Message) { fast <- message.Text() }))
	subscribe(t, bus, "go/y")
	for _, text := range []string{"1", "2"} {
		must(t, bus.Publish(ctx, "go/x", []byte(text)))
		must(t, bus.Publish(ctx, "go/y", []byte(text)))
		same(t, <-fast, text)
	}
	must(t, bus.Barrier(ctx))
	expect(t, bus.Receive, "1", "2") // once, and in the stream only for the subscription without a callback
	same(t, s.Pending(), 4)
	same(t, <-slow+<-slow+<-slow+<-slow, "1122")
	if _, err := s.Receive(ctx); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	for range s.Messages() {
		t.Error("a message of the callback")
	}
	must(t, s.Close(ctx))
	must(t, bus.Publish(ctx, "go/x", []byte("3")))
	same(t, <-fast, "3")
	same(t, s.Pending(), 0)
}

func TestACallbackMayAskAndEndItsSubscription(t *testing.T) {
	bus := open(t, Options{})
	ctx := within(t, patience)
	result, self := make(chan error, 10), make(chan *Subscription, 1)
	self <- subscribe(t, bus, "go/once", Callback(func(Message) {
		result <- bus.Barrier(ctx)
		result <- (<-self).Close(ctx)
	}))
	must(t, bus.Publish(ctx, "go/once", nil))
	must(t, <-result)
	must(t, <-result)
	must(t, bus.Publish(ctx, "go/once", nil))
	expect(t, bus.Receive) // nor does it come to the client's stream
}

func TestListenHasACallbackOrTheStream(t *testing.T) {
	bus, other := open(t, Options{}), open(t, Options{})
	ctx := within(t, patience)
	heard := make(chan Message, 10)
	must(t, bus.Listen(ctx, Callback(func(message Message) { heard <- message })))
	must(t, other.Listen(ctx))
	must(t, bus.PublishTo(ctx, other.Name(), []byte("you")))
	must(t, bus.Barrier(ctx)) // messages of two sources have no order
	must(t, other.PublishTo(ctx, bus.Name(), []byte("me")))
	must(t, other.PublishAll(ctx, []byte("all")))
	message := <-heard
	same(t, message.Channel+message.Text(), "!"+bus.Name()+"me")
	message = <-heard
	same(t, message.Channel+message.Text(), "!all")
	expect(t, bus.Receive)
	expect(t, other.Receive, "you", "all")
}

func TestAContextEndsEveryWait(t *testing.T) {
	bus := open(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := bus.Receive(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, subscribed := bus.Subscribe(ctx, "go")
	_, asked := bus.Request(ctx, "go/ask", nil)
	for _, err := range []error{subscribed, asked, bus.Barrier(ctx), bus.Publish(ctx, "go", nil)} {
		if !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if _, err := bus.Receive(within(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	must(t, bus.Barrier(context.Background())) // the answer to the abandoned barrier does not answer this one
}

func TestCloseEndsEveryWait(t *testing.T) {
	bus := open(t, Options{})
	result := make(chan error)
	s := subscribe(t, bus, "go/never")
	for _, receive := range []func(context.Context) (Message, error){bus.Receive, s.Receive} {
		go func() {
			_, err := receive(context.Background())
			result <- err
		}()
	}
	time.AfterFunc(10*time.Millisecond, func() { bus.Close() })
	for range 2 {
		if err := <-result; !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
	ctx := context.Background()
	must(t, bus.Close())
	must(t, s.Close(ctx)) // it has ended with the client
	for _, err := range []error{bus.Publish(ctx, "go", nil), bus.Barrier(ctx), bus.Listen(ctx)} {
		if !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	}
}

func TestErrorsAreTyped(t *testing.T) {
	notices := make(chan Notice, 10)
	asked := make(chan error, 10)
	ctx := within(t, patience)
	var bus *Client
	bus = open(t, Options{OnNotice: func(notice Notice) {
		asked <- bus.Barrier(ctx) // it may ask
		notices <- notice
	}})
	must(t, bus.Publish(ctx, "go/large", make([]byte, 2000)))
	err := <-asked
	var rejection *Error
	if !errors.Is(err, ErrTooLarge) || errors.Is(err, ErrBadChannel) || !errors.As(err, &rejection) {
		t.Fatal(err)
	}
	same(t, rejection.Code, ErrTooLarge)
	notice := <-notices
	if notice.Kind != NoticeRejected || !errors.Is(notice.Err, ErrTooLarge) {
		t.Error(notice)
	}
	if _, err = bus.Request(ctx, "go/large", make([]byte, 2000)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	must(t, bus.Barrier(ctx)) // the request itself has reported the rejection
	if _, err := bus.Subscribe(ctx, "a*b"); !errors.Is(err, ErrBadPattern) {
		t.Error(err)
	}
	if err := bus.SendDatagram(ctx, []byte("SUB >")); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	_, err = Open(ctx, "/nonexistent/bus.sock", Options{})
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if _, err := Open(ctx, "", Options{Queue: Queue{Policy: "no such policy"}}); !errors.Is(err, ErrBadValue) {
		t.Error(err)
	}
}

func TestManyGoroutinesServeRequests(t *testing.T) {
	server, asker := open(t, Options{Format: FormatFull}), open(t, Options{})
	ctx := within(t, patience)
	served, err := server.Serve(ctx, "go/ask", func(request *Request) []byte {
		if len(request.Payload)%2 == 0 {
			return append([]byte("re:"), request.Payload...)
		}
		go func() { must(t, request.Reply(ctx, append([]byte("re:"), request.Payload...))) }()
		return nil
	})
	must(t, err)
	must(t, asker.Publish(ctx, "go/ask", []byte("this is no request")))
	var work sync.WaitGroup
	for i := range 20 {
		work.Add(1)
		go func() {
			defer work.Done()
			question := strconv.Itoa(i)
			reply, err := asker.Request(ctx, "go/ask", []byte(question))
			must(t, err)
			same(t, reply.Text(), "re:"+question)
		}()
	}
	work.Wait()
	must(t, served.Close(ctx))
	if _, err := asker.Request(ctx, "local/ask", nil); !errors.Is(err, ErrNobody) {
		t.Error(err)
	}
	if _, err := asker.Serve(ctx, "go/ask", nil); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
	expect(t, asker.Receive)
	expect(t, server.Receive)
}

// A timer is a context whose time is over when the test says so.
type timer struct {
	context.Context
	over chan struct{}
}

func (t timer) Done() <-chan struct{} { return t.over }

func (t timer) Err() error {
	select {
	case <-t.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

func TestRequestManyYieldsTheRepliesInTime(t *testing.T) {
	asker := open(t, Options{})
	server := open(t, Options{Format: FormatFull})
	ctx := within(t, patience)
	brief := timer{ctx, make(chan struct{})}
	_, err := server.Serve(ctx, "go/all", func(request *Request) []byte {
		if request.Text() == "a question without a reply" {
			close(brief.over)
			return nil
		}
		for _, reply := range []string{"1", "2", "3"} {
			must(t, request.Reply(ctx, []byte(reply)))
		}
		return nil
	})
	must(t, err)
	ask := func(ctx context.Context, question string, count int) (texts string) {
		for reply, err := range asker.RequestMany(ctx, "go/all", []byte(question), count) {
			must(t, err)
			texts += reply.Text()
		}
		return texts
	}
	same(t, ask(ctx, "?", 2), "12")
	same(t, ask(ctx, "?", 3), "123")
	for reply, err := range asker.RequestMany(ctx, "go/all", nil, 0) {
		must(t, err)
		same(t, reply.Text(), "1")
		break
	}
	for reply, err := range asker.RequestMany(ctx, "local/nobody", nil, 0) {
		if !errors.Is(err, ErrNobody) {
			t.Error(reply, err)
		}
	}
	must(t, server.Barrier(ctx))
	same(t, ask(brief, "a question without a reply", 1), "") // that is no error
}
