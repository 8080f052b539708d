package bccn

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// These tests cover what only Go has: goroutines, channels and contexts. They need the daemon at $BCCN_SOCKET. The
// conformance suite tests the rest through the driver, as in every language (clients/CONFORMANCE.md).

const patience = 10 * time.Second

func open(t *testing.T, options Options) *Client {
	t.Helper()
	if os.Getenv("BCCN_SOCKET") == "" {
		t.Skip("no BCCN_SOCKET: these tests need a daemon")
	}
	bus, err := Open("", options)
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

func TestManyGoroutinesShareAClient(t *testing.T) {
	const publishers, receivers, messages = 8, 4, 500
	bus := open(t, Options{Queue: "packets=10000"})
	ctx := within(t, patience)
	must(t, bus.Subscribe(ctx, "go/many"))
	var work sync.WaitGroup
	for i := range publishers {
		work.Add(1)
		go func() {
			defer work.Done()
			for n := range messages {
				must(t, bus.Publish("go/many", []byte(strconv.Itoa(i*messages+n))))
				if n%100 == 0 {
					must(t, bus.Barrier(ctx))
					must(t, bus.Subscribe(ctx, fmt.Sprint("go/other/", i)))
					must(t, bus.Unsubscribe(ctx, fmt.Sprint("go/other/", i)))
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
	must(t, bus.Subscribe(ctx, "go/channel"))
	for i := range 3 {
		must(t, bus.Publish("go/channel", []byte(strconv.Itoa(i))))
	}
	for i := range 3 {
		select {
		case message := <-bus.Messages():
			same(t, message.Text(), strconv.Itoa(i))
		case <-ctx.Done():
			t.Fatal(ctx.Err())
		}
	}
	must(t, bus.Publish("go/channel", []byte("nobody takes it")))
	must(t, bus.Barrier(ctx))
	must(t, bus.Close())
	for range bus.Messages() { // at most one more message comes, and then the channel is closed
	}
}

func TestAContextEndsEveryWait(t *testing.T) {
	bus := open(t, Options{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := bus.Receive(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := bus.Barrier(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := bus.Receive(within(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	must(t, bus.Barrier(context.Background())) // the answer to the abandoned barrier does not answer this one
}

func TestCloseEndsEveryWait(t *testing.T) {
	bus := open(t, Options{})
	result := make(chan error)
	go func() {
		_, err := bus.Receive(context.Background())
		result <- err
	}()
	time.AfterFunc(10*time.Millisecond, func() { bus.Close() })
	if err := <-result; !errors.Is(err, Closed) {
		t.Error(err)
	}
	ctx := context.Background()
	for _, err := range []error{bus.Publish("go", nil), bus.Barrier(ctx), bus.Subscribe(ctx, "go")} {
		if !errors.Is(err, Closed) {
			t.Error(err)
		}
	}
}

func TestErrorsAreTyped(t *testing.T) {
	bus := open(t, Options{OnNotice: func(Notice) {}})
	ctx := within(t, patience)
	must(t, bus.Publish("go/large", make([]byte, 2000)))
	err := bus.Barrier(ctx)
	var rejection *Error
	if !errors.Is(err, TooLarge) || errors.Is(err, BadChannel) || !errors.As(err, &rejection) {
		t.Fatal(err)
	}
	same(t, rejection.Code, TooLarge)
	must(t, bus.Barrier(ctx))
	if _, err = bus.Request(ctx, "go/large", make([]byte, 2000)); !errors.Is(err, TooLarge) {
		t.Error(err)
	}
	must(t, bus.Barrier(ctx)) // the request itself has reported the rejection
	if _, err := Open("/nonexistent/bus.sock", Options{}); !errors.Is(err, Unavailable) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestManyGoroutinesServeRequests(t *testing.T) {
	server, asker := open(t, Options{Full: true}), open(t, Options{})
	ctx, stop := context.WithCancel(within(t, patience))
	must(t, server.Subscribe(ctx, "go/ask"))
	served := make(chan error)
	go func() {
		served <- server.Serve(ctx, func(request *Request) {
			go func() { must(t, request.Reply(append([]byte("re:"), request.Payload...))) }()
		})
	}()
	var work sync.WaitGroup
	for i := range 20 {
		work.Add(1)
		go func() {
			defer work.Done()
			question := strconv.Itoa(i)
			answer, err := asker.Request(ctx, "go/ask", []byte(question))
			must(t, err)
			same(t, answer.Text(), "re:"+question)
		}()
	}
	work.Wait()
	stop()
	if err := <-served; err != context.Canceled {
		t.Error(err)
	}
	if _, err := asker.Receive(within(t, 0)); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}

func TestRequestManyTakesTheAnswersInTime(t *testing.T) {
	asker := open(t, Options{})
	server := open(t, Options{Full: true})
	ctx := within(t, patience)
	must(t, server.Subscribe(ctx, "go/all"))
	go func() {
		_ = server.Serve(ctx, func(request *Request) {
			for _, answer := range []string{"1", "2", "3"} {
				must(t, request.Reply([]byte(answer)))
			}
		})
	}()
	answers, err := asker.RequestMany(within(t, 200*time.Millisecond), "go/all", nil, 0)
	must(t, err)
	same(t, len(answers), 3)
	answers, err = asker.RequestMany(ctx, "go/all", nil, 2)
	must(t, err)
	same(t, len(answers), 2)
}
