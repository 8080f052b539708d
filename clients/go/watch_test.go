package bccn

import (
	"context"
	"net"
	"strings"
	"testing"
)

// What a callback of a watch is told, and when: the conformance suite has the rest.

func TestASlowCallbackOfAWatchIsToldTheLastState(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{})
	ctx := within(t, patience)
	told := make(chan bool)
	must(t, bus.Watch(ctx, "a", func(_ string, wanted bool) {
		told <- wanted
		told <- wanted
	}))
	say(conn, "CMSG wanted\x00here a")
	same(t, <-told, true)
	for _, where := range []string{"no", "elsewhere", "no"} {
		say(conn, "CMSG wanted\x00"+where+" a")
	}
	must(t, bus.Barrier(ctx)) // it has been read
	same(t, <-told, true)
	same(t, <-told, false)
	say(conn, "CMSG wanted\x00here a")
	say(conn, "CMSG wanted\x00no a")
	must(t, bus.Barrier(ctx))
	same(t, <-told, false)
	say(conn, "CMSG wanted\x00here a")
	same(t, <-told, true)
	<-told
}

func TestACallbackMayEndItsWatchAndBeginAnother(t *testing.T) {
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if packet == "CMSG watch\x00a" || packet == "CMSG watch\x00b" {
			say(conn, packet)
			say(conn, "CMSG wanted\x00here "+packet[len(packet)-1:])
			return true
		}
		return false
	})
	bus, conn := daemon.open(t, Options{})
	ctx := within(t, patience)
	told, ended := make(chan string, 10), make(chan struct{})
	must(t, bus.Watch(ctx, "a", func(pattern string, _ bool) {
		defer close(ended)
		told <- pattern
		must(t, bus.Unwatch(ctx, pattern))
		must(t, bus.Watch(ctx, "b", func(pattern string, _ bool) { told <- pattern }))
	}))
	same(t, <-told+<-told, "ab")
	<-ended
	say(conn, "CMSG wanted\x00no a")
	must(t, bus.Barrier(ctx))
	same(t, len(told), 0)
}

// asking opens a client whose daemon answers no watch and no unwatch, but hands on what it is asked.
func asking(t *testing.T) (*Client, *net.UnixConn, chan string) {
	t.Helper()
	seen := make(chan string, 10)
	daemon := serveScripted(t, func(_ *net.UnixConn, packet string) bool {
		isAsked := strings.Contains(packet, "watch\x00")
		if isAsked {
			seen <- packet
		}
		return isAsked
	})
	bus, conn := daemon.open(t, Options{})
	return bus, conn, seen
}

func TestAWatchGivenUpEndsNoOtherCall(t *testing.T) {
	bus, conn, seen := asking(t)
	ctx := within(t, patience)
	begin := func() (context.CancelFunc, chan error) {
		call, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- bus.Watch(call, "a", func(string, bool) {}) }()
		same(t, <-seen, "CMSG watch\x00a")
		return cancel, ended
	}
	giveUp, first := begin()
	_, second := begin()
	giveUp()
	same(t, <-first, context.Canceled)
	say(conn, "CMSG watch\x00a")
	say(conn, "CMSG watch\x00a")
	must(t, <-second)
	must(t, bus.Barrier(ctx))
	same(t, len(seen), 0)
	unwatched := make(chan error)
	go func() { unwatched <- bus.Unwatch(ctx, "a") }()
	same(t, <-seen, "CMSG unwatch\x00a")
	say(conn, "CMSG unwatch\x00a")
	must(t, <-unwatched)

	giveUp, first = begin()
	giveUpToo, second := begin()
	giveUp()
	same(t, <-first, context.Canceled)
	giveUpToo()
	same(t, <-second, context.Canceled)
	same(t, <-seen, "CMSG unwatch\x00a")
}

func TestAnUnwatchEndsAWatchThatWasAskedForBefore(t *testing.T) {
	bus, conn, seen := asking(t)
	ctx := within(t, patience)
	ended := make(chan error, 2)
	go func() { ended <- bus.Watch(ctx, "a", func(string, bool) {}) }()
	same(t, <-seen, "CMSG watch\x00a")
	go func() { ended <- bus.Unwatch(ctx, "a") }()
	same(t, <-seen, "CMSG unwatch\x00a")
	say(conn, "CMSG watch\x00a")
	say(conn, "CMSG unwatch\x00a")
	must(t, <-ended)
	must(t, <-ended)
	bus.mu.Lock()
	defer bus.mu.Unlock()
	same(t, len(bus.watches), 0)
}

func TestAnUnwatchDuringAGreetingIsSaidAfterIt(t *testing.T) {
	seen, greeted := make(chan string, 10), make(chan *net.UnixConn, 10)
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if strings.Contains(packet, "watch\x00") {
			seen <- packet
		}
		if packet == "CMSG whoami\x00" {
			greeted <- conn
		}
		return packet == "CMSG whoami\x00" && len(seen) > 0
	})
	bus, conn := daemon.open(t, Options{OnNotice: func(Notice) {}})
	<-greeted
	must(t, bus.Watch(within(t, patience), "a", func(string, bool) {}))
	conn.Close()
	conn = <-greeted
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	same(t, bus.Unwatch(ctx, "a"), context.Canceled)
	say(conn, "CMSG whoami\x00here/test/1")
	same(t, <-seen+<-seen+<-seen, "CMSG watch\x00aCMSG watch\x00aCMSG unwatch\x00a")
}
