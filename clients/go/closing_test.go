package bccn

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"
)

// Calls that make no sense, calls of a client that is closed, and what is left of it.

var noContext context.Context

func TestACallWithoutAContextIsInvalid(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, _ := daemon.open(t, Options{Format: FormatFull})
	ctx := within(t, patience)
	s, err := bus.Subscribe(ctx, "a")
	must(t, err)
	calls := map[string]func() error{
		"Open":       func() error { _, err := Open(noContext, daemon.path, Options{}); return err },
		"Publish":    func() error { return bus.Publish(noContext, "a", nil) },
		"Barrier":    func() error { return bus.Barrier(noContext) },
		"Subscribe":  func() error { _, err := bus.Subscribe(noContext, "b"); return err },
		"Listen":     func() error { return bus.Listen(noContext) },
		"Receive":    func() error { _, err := bus.Receive(noContext); return err },
		"s.Receive":  func() error { _, err := s.Receive(noContext); return err },
		"s.Close":    func() error { return s.Close(noContext) },
		"Request":    func() error { _, err := bus.Request(noContext, "a", nil); return err },
		"Clients":    func() error { _, err := bus.Clients(noContext); return err },
		"Watch":      func() error { return bus.Watch(noContext, "a", func(string, bool) {}) },
		"Unwatch":    func() error { return bus.Unwatch(noContext, "a") },
		"no news":    func() error { return bus.Watch(ctx, "a", nil) },
		"no handler": func() error { _, err := bus.Serve(ctx, "a", nil); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestAnOptionThatIsNilIsNone(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{})
	s, err := bus.Subscribe(within(t, patience), "a", nil, Callback(nil))
	must(t, err)
	say(conn, "MSG a\x00hello")
	expect(t, s.Receive, "hello")
}

func TestAPacketThatIsTooLongIsNotCut(t *testing.T) {
	notices := make(chan Notice, 10)
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{OnNotice: func(notice Notice) { notices <- notice }})
	head := "MSG a\x00"
	longest := head + strings.Repeat("x", receiveLimit-len(head))
	must(t, conn.SetWriteBuffer(4*receiveLimit))
	say(conn, longest)
	message, err := bus.Receive(within(t, patience))
	must(t, err)
	same(t, len(message.Payload), receiveLimit-len(head))
	say(conn, longest+"x")
	notice := <-notices
	same(t, notice.Kind, NoticeDisconnected)
	same(t, notice.Text, "the daemon sent more than 131072 bytes at once")
	say(<-daemon.conn, "MSG a\x00whole")
	expect(t, bus.Receive, "whole")
}

func TestACallbackClosesWhatItIsCalledBy(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{})
	ctx, called, closing := within(t, patience), make(chan error, 1), make(chan *Subscription, 1)
	s, err := bus.Subscribe(ctx, "a", Callback(func(Message) { called <- (<-closing).Close(ctx) }))
	must(t, err)
	_, err = bus.Subscribe(ctx, "b", Callback(func(Message) { called <- bus.Close() }))
	must(t, err)
	closing <- s
	for _, channel := range []string{"a", "b"} {
		say(conn, "MSG "+channel+"\x00")
		must(t, <-called)
	}
	must(t, s.Close(ctx))
}

func TestAClientThatIsClosedSaysSo(t *testing.T) {
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if packet == "CMSG pack\x00on" {
			say(conn, packet+" 65536")
		}
		return packet == "CMSG pack\x00on"
	})
	bus, _ := daemon.open(t, Options{Format: FormatFull, Pack: true})
	ctx := within(t, patience)
	s, err := bus.Subscribe(ctx, "a")
	must(t, err)
	other, err := bus.Subscribe(ctx, "b", Callback(func(Message) {}))
	must(t, err)
	batch := bus.Batch()
	must(t, batch.Publish(ctx, "a", nil))
	must(t, bus.Close())
	must(t, bus.Close())
	calls := map[string]func() error{
		"Publish":   func() error { return bus.Publish(ctx, "a", nil) },
		"Flush":     func() error { return batch.Flush(ctx) },
		"Barrier":   func() error { return bus.Barrier(ctx) },
		"Subscribe": func() error { _, err := bus.Subscribe(ctx, "c"); return err },
		"Listen":    func() error { return bus.Listen(ctx) },
		"Serve":     func() error { _, err := bus.Serve(ctx, "!", func(*Request) []byte { return nil }); return err },
		"Receive":   func() error { _, err := bus.Receive(ctx); return err },
		"s.Receive": func() error { _, err := s.Receive(ctx); return err },
		"Request":   func() error { _, err := bus.Request(ctx, "a", nil); return err },
		"SetName":   func() error { return bus.SetName(ctx, "a") },
		"Watch":     func() error { return bus.Watch(ctx, "a", func(string, bool) {}) },
		"Unwatch":   func() error { return bus.Unwatch(ctx, "a") },
		"Status":    func() error { _, err := bus.Status(ctx); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, ErrClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range bus.Messages() {
		t.Error("a message of nobody")
	}
	for range s.Messages() {
		t.Error("a message of nobody")
	}
	must(t, s.Close(ctx))
	must(t, other.Close(ctx))
	same(t, other.Pending(), 0)
}

func TestACloseLeavesNoGoroutine(t *testing.T) {
	daemon := serveScripted(t, func(_ *net.UnixConn, packet string) bool {
		return packet == "CMSG odd\x00" // without an answer
	})
	before, ctx := runtime.NumGoroutine(), within(t, patience)
	for _, options := range []Options{{}, {NoReconnect: true}, {Tap: TapOn, Format: FormatFull}} {
		options.OnNotice = func(Notice) {}
		bus, conn := daemon.open(t, options)
		s, err := bus.Subscribe(ctx, "a")
		must(t, err)
		_, err = bus.Subscribe(ctx, "b", Callback(func(Message) {}))
		must(t, err)
		must(t, bus.Listen(ctx, Callback(func(Message) {})))
		for _, packet := range []string{"MSG a\x00", "MSG b\x00", "MSG c\x00"} {
			say(conn, packet)
		}
		_, _ = bus.Messages(), s.Messages() // nobody takes what is in them
		ended := make(chan error, 3)
		go func() { _, err := bus.Control(ctx, "odd", ""); ended <- err }()
		go func() { _, err := bus.Request(ctx, "a", nil); ended <- err }()
		if options.NoReconnect {
			conn.Close()
		}
		if err := bus.Barrier(ctx); (err != nil) != options.NoReconnect {
			t.Error(err)
		}
		must(t, bus.Close())
		for range 2 {
			<-ended
		}
	}
	for runtime.NumGoroutine() > before { // the last of them are about to end; those of the daemon, too
		select {
		case <-ctx.Done():
			stacks := make([]byte, 1<<16)
			t.Fatalf("%s", stacks[:runtime.Stack(stacks, true)])
		case <-time.After(time.Millisecond):
		}
	}
}
