package bccn

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"
)

// These tests cover what a real daemon does seldom or never. Theirs is a few lines: it answers each control request with
// its own value, and lets a script of the test take packets first.

type scripted struct {
	path string
	conn chan *net.UnixConn // each connection, once its whoami is answered
}

func serveScripted(t *testing.T, script func(conn *net.UnixConn, packet string) bool) *scripted {
	t.Helper()
	daemon := &scripted{path: filepath.Join(t.TempDir(), "bus"), conn: make(chan *net.UnixConn, 16)}
	listener, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: daemon.path, Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go daemon.serve(conn, script)
		}
	}()
	return daemon
}

func (d *scripted) serve(conn *net.UnixConn, script func(*net.UnixConn, string) bool) {
	for buffer := make([]byte, receiveLimit); ; {
		size, err := conn.Read(buffer)
		if err != nil {
			return
		}
		packet := string(buffer[:size])
		if script != nil && script(conn, packet) {
			continue
		}
		key, value, _ := strings.Cut(strings.TrimPrefix(packet, "CMSG "), "\x00")
		switch {
		case !strings.HasPrefix(packet, "CMSG "):
		case key == "ping":
			say(conn, "CMSG pong\x00"+value)
		case key == "whoami":
			say(conn, "CMSG whoami\x00here/test/1")
			d.conn <- conn
		default:
			say(conn, "CMSG "+key+"\x00"+value)
		}
	}
}

func say(conn *net.UnixConn, packet string) { _, _ = conn.Write([]byte(packet)) }

func (d *scripted) open(t *testing.T, options Options) (*Client, *net.UnixConn) {
	t.Helper()
	bus, err := Open(within(t, patience), d.path, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bus.Close() })
	return bus, <-d.conn
}

func TestOpenEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	daemon := serveScripted(t, func(_ *net.UnixConn, packet string) bool {
		cancel()
		return true // without an answer
	})
	if _, err := Open(ctx, daemon.path, Options{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Open(ctx, "/nonexistent/bus.sock", Options{Wait: time.Hour}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	_, err := Open(within(t, time.Millisecond), "/nonexistent/bus.sock", Options{Wait: time.Hour})
	if !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
}

func TestWhatIsSentAtTheLastMomentIsInDoubt(t *testing.T) {
	notices := make(chan Notice, 10)
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{OnNotice: func(notice Notice) { notices <- notice }})
	ctx := within(t, patience)
	bus.mu.Lock()
	link := bus.link
	bus.mu.Unlock()
	must(t, bus.sending.enter(ctx)) // as a goroutine that has just sent a message
	conn.Close()
	for link.conn.SetWriteDeadline(time.Time{}) == nil {
		time.Sleep(time.Millisecond)
	}
	select {
	case notice := <-notices:
		t.Errorf("%+v before the message is counted", notice)
	case <-time.After(10 * time.Millisecond):
	}
	bus.count(1)
	bus.sending.leave()
	notice := <-notices
	same(t, notice.Kind, NoticeDisconnected)
	same(t, notice.Count, uint64(1))
}

func TestAPublishWithoutRoomEndsWithItsContext(t *testing.T) {
	room := make(chan struct{})
	daemon := serveScripted(t, func(_ *net.UnixConn, packet string) bool {
		if strings.HasPrefix(packet, "MSG ") {
			<-room
		}
		return false
	})
	bus, _ := daemon.open(t, Options{})
	publish := func(ctx context.Context) (err error) {
		for payload := make([]byte, 60_000); err == nil; {
			err = bus.Publish(ctx, "a", payload)
		}
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(10*time.Millisecond, cancel)
	if err := publish(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	ended := make(chan error)
	for range 2 { // one waits for room, and the other for the first one
		go func() { ended <- publish(within(t, 10*time.Millisecond)) }()
	}
	for range 2 {
		if err := <-ended; !errors.Is(err, ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
	}
	close(room)
	must(t, bus.Barrier(within(t, patience)))
}

func TestUnknownCodesOfANewerDaemonCompare(t *testing.T) {
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if packet == "CMSG odd\x00" {
			say(conn, "CMSG error\x00quite-new CMSG odd: a text")
			return true
		}
		return false
	})
	bus, _ := daemon.open(t, Options{})
	_, err := bus.Control(within(t, patience), "odd", "")
	var found *Error
	if !errors.Is(err, Code("quite-new")) || errors.Is(err, ErrRefused) || !errors.As(err, &found) {
		t.Fatal(err)
	}
	same(t, found.Text, "CMSG odd: a text (quite-new)")
}

func TestRowsOfAllPagesAreOneArray(t *testing.T) {
	pages := map[string]string{
		"":  `{"clients": [{"name": "a"}], "next": "a"}`,
		"a": `{"clients": [], "next": 17}`, "17": `{"clients": [{"name": "b"}], "next": null}`,
	}
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		cursor, found := strings.CutPrefix(packet, "CMSG clients\x00")
		if found {
			say(conn, "CMSG clients\x00"+pages[cursor])
		}
		return found
	})
	bus, _ := daemon.open(t, Options{})
	rows, err := bus.Clients(within(t, patience))
	must(t, err)
	same(t, string(rows), `[{"name":"a"},{"name":"b"}]`)
	if _, err := bus.Sources(within(t, patience)); !errors.Is(err, ErrProtocol) { // it is no JSON
		t.Error(err)
	}
}

func TestNoticesThatNobodyTakesAreCounted(t *testing.T) {
	const rejections = 4 * noticesLimit
	daemon := serveScripted(t, nil)
	hold, kinds := make(chan struct{}), make(chan Notice, 2*noticesLimit)
	bus, conn := daemon.open(t, Options{OnNotice: func(notice Notice) {
		<-hold
		kinds <- notice
	}})
	for i := range rejections {
		say(conn, fmt.Sprintf("CMSG error\x00too-large MSG a%d: too large", i))
	}
	say(conn, "CMSG error\x00too-large MSG b: too large")
	say(conn, "CMSG dropped\x003")
	if err := bus.Barrier(within(t, patience)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	same(t, bus.Lost(), uint64(3))
	close(hold)
	for seen := uint64(0); ; {
		select {
		case notice := <-kinds:
			if notice.Kind == NoticeLost {
				same(t, seen, uint64(rejections+1))
				return
			}
			seen += notice.Count
		case <-within(t, patience).Done():
			t.Fatal("no notice of the loss")
		}
	}
}

func TestWithoutReconnectingCallsFailOnceTheDaemonIsGone(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{NoReconnect: true, OnNotice: func(Notice) {}})
	ctx := within(t, patience)
	_, err := bus.Subscribe(ctx, "a")
	must(t, err)
	say(conn, "MSG a\x00last words")
	conn.Close()
	message, err := bus.Receive(ctx)
	must(t, err)
	same(t, message.Text(), "last words")
	_, err = bus.Receive(ctx)
	for _, err := range []error{err, bus.Barrier(ctx), bus.Publish(ctx, "a", nil), bus.PublishAll(ctx, nil)} {
		if !errors.Is(err, ErrUnavailable) {
			t.Error(err)
		}
	}
	for range bus.Messages() {
		t.Error("a message of nobody")
	}
	must(t, bus.Close())
	if _, err := bus.Receive(ctx); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

func TestEachStreamReportsTheGapBeforeItsNextMessage(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{OnNotice: func(Notice) {}})
	ctx := within(t, patience)
	a, err := bus.Subscribe(ctx, "a")
	must(t, err)
	_, err = bus.Subscribe(ctx, "b")
	must(t, err)
	for _, packet := range []string{"MSG b\x001", "CMSG dropped\x003", "MSG b\x002", "MSG a\x001", "CMSG dropped\x004"} {
		say(conn, packet)
	}
	must(t, bus.Barrier(ctx))
	expect := func(receive func(context.Context) (Message, error), channel, text string, lost uint64) {
		t.Helper()
		message, err := receive(ctx)
		must(t, err)
		same(t, fmt.Sprint(message.Channel, message.Text(), message.Lost), fmt.Sprint(channel, text, lost))
	}
	expect(a.Receive, "a", "1", 3)
	say(conn, "MSG a\x002")
	say(conn, "MSG b\x003")
	expect(a.Receive, "a", "2", 4)
	expect(bus.Receive, "b", "1", 0)
	expect(bus.Receive, "b", "2", 3)
	expect(bus.Receive, "b", "3", 4)
	same(t, bus.Lost(), uint64(7))
}

func TestMessagesThatNobodyReceivesDoNotStopCallbacks(t *testing.T) {
	notices, called := make(chan Notice, 100), make(chan Message, 1)
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{OnNotice: func(notice Notice) { notices <- notice }})
	_, err := bus.Subscribe(within(t, patience), "a", Callback(func(message Message) { called <- message }))
	must(t, err)
	for range 2 * readAhead / messageCost {
		say(conn, "MSG !\x00to all")
	}
	say(conn, "MSG a\x00hello")
	select {
	case message := <-called:
		same(t, message.Text(), "hello")
	case <-within(t, patience).Done():
		t.Fatal("no call")
	}
	notice := <-notices
	if notice.Kind != NoticeUnclaimed || notice.Count == 0 {
		t.Error(notice)
	}
}

func TestATapShowsWhatNoCallbackGets(t *testing.T) {
	called := make(chan Message, 2)
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{Format: FormatFull, Tap: TapInterface})
	ctx := within(t, patience)
	_, err := bus.Subscribe(ctx, "a", Callback(func(message Message) { called <- message }))
	must(t, err)
	for _, head := range []string{"duplicate eth0", "ok -"} {
		say(conn, "RECV local 1 "+head+"\x00BCCN1[5]x:1:a|")
	}
	message, err := bus.Receive(ctx)
	must(t, err)
	same(t, message.Verdict+message.Interface, "duplicateeth0")
	message = <-called
	same(t, message.Verdict+message.Interface, "ok-")
	expect(t, bus.Receive)
}

func TestARefusedSubscribeNeverCallsItsCallback(t *testing.T) {
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if packet == "SUB a" {
			say(conn, "MSG a\x00before the refusal")
			say(conn, "CMSG error\x00refused SUB a: no right to it")
		}
		return false
	})
	bus, conn := daemon.open(t, Options{})
	ctx := within(t, patience)
	_, err := bus.Subscribe(ctx, "a", Callback(func(Message) { t.Error("called") }))
	if !errors.Is(err, ErrRefused) {
		t.Error(err)
	}
	_, err = bus.Subscribe(ctx, "b")
	must(t, err)
	say(conn, "MSG b\x00after it")
	expect(t, bus.Receive, "after it")
	same(t, bus.waiting+bus.routed, 0)
}

func TestCallbacksAndStreamsGoOnOverReconnections(t *testing.T) {
	heard := make(chan string, 10)
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if strings.HasPrefix(packet, "SUB ") || packet == "CMSG listen\x00" {
			heard <- packet
		}
		return false
	})
	called := make(chan string, 10)
	call := Callback(func(message Message) { called <- message.Channel + message.Text() })
	bus, conn := daemon.open(t, Options{OnNotice: func(Notice) {}})
	ctx := within(t, patience)
	_, err := bus.Subscribe(ctx, "a", call)
	must(t, err)
	s, err := bus.Subscribe(ctx, "b")
	must(t, err)
	must(t, bus.Listen(ctx, call))
	expect(t, s.Receive)
	same(t, <-heard+<-heard+<-heard, "SUB aSUB bCMSG listen\x00")
	conn.Close()
	conn = <-daemon.conn
	same(t, <-heard+<-heard+<-heard, "CMSG listen\x00SUB aSUB b")
	for _, packet := range []string{"MSG b\x001", "MSG a\x002", "MSG !\x003"} {
		say(conn, packet)
	}
	expect(t, s.Receive, "1")
	for range 2 {
		if text := <-called; text != "a2" && text != "!3" { // two callbacks have no common order
			t.Error(text)
		}
	}
}

func TestATapShowsWhatIsDirectedToOthers(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, conn := daemon.open(t, Options{Format: FormatFull, Tap: TapOn})
	say(conn, "RECV local 1 ok\x00BCCN1[5]x:1:!y|yes")
	expect(t, bus.Receive, "yes")
}

func TestCloseWithAContextThatHasEndedTellsTheDaemon(t *testing.T) {
	heard := make(chan string, 1)
	daemon := serveScripted(t, func(_ *net.UnixConn, packet string) bool {
		if strings.HasPrefix(packet, "UNSUB ") {
			heard <- packet
		}
		return false
	})
	bus, _ := daemon.open(t, Options{})
	s, err := bus.Subscribe(within(t, patience), "a")
	must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Close(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	select {
	case packet := <-heard:
		same(t, packet, "UNSUB a")
	case <-within(t, patience).Done():
		t.Error("the daemon still holds it")
	}
}

func TestADaemonThatAlwaysClosesIsLeftAPause(t *testing.T) {
	var greetings atomic.Int64
	daemon := serveScripted(t, func(conn *net.UnixConn, packet string) bool {
		if packet != "CMSG whoami\x00" || greetings.Add(1) == 1 {
			return false
		}
		say(conn, "CMSG whoami\x00here/test/1")
		conn.Close()
		return true
	})
	bus, conn := daemon.open(t, Options{OnNotice: func(Notice) {}})
	begun := time.Now()
	conn.Close()
	if err := bus.Barrier(within(t, 10*backoffFirst)); !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrTimeout) {
		t.Error(err)
	}
	came := greetings.Load()
	if most := 2 + int64(time.Since(begun)/(backoffFirst/2)); came > most {
		t.Errorf("%d connections, at most %d are due", came, most)
	}
}

func TestMessagesWithoutAnEndAreNoGreeting(t *testing.T) {
	daemon := serveScripted(t, nil)
	bus, _ := daemon.open(t, Options{})
	fill := func(bytes int) {
		bus.mu.Lock()
		defer bus.mu.Unlock()
		bus.hold(&bus.stream, bytes)
	}
	fill(overflowLimit + 1)
	if _, err := bus.attempt(within(t, patience), true); !errors.Is(err, ErrBacklog) || !errors.Is(err, ErrUnavailable) {
		t.Error(err)
	}
	fill(-overflowLimit - 1)
	must(t, bus.Barrier(within(t, patience)))
	same(t, costOf(&Message{Datagram: make([]byte, 1000)}), 1000+messageCost)
}
