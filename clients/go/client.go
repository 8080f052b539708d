// Package bccn is the client of the bccnd bus: LISTEN/NOTIFY between the programs of a host and of its network segment.
//
//	bus, err := bccn.Open(ctx, "", bccn.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer bus.Close()
//	readings, err := bus.Subscribe(ctx, "sensors/>")
//	err = bus.Publish(ctx, "sensors/kitchen", []byte("21.5"))
//	for message := range readings.Messages() {
//		fmt.Println(message.Channel, message.Text())
//	}
//
// Many goroutines may use a Client and a Subscription. The client reconnects by itself when the daemon goes away, with
// every subscription and setting. A call that waits for the daemon waits until its context ends, or for Options.Timeout
// if the context has no deadline. Errors are of type *Error, and errors.Is knows their Code.
//
// A Go program cannot fork, so nothing here is for a child that shares its parent's client. A program started with
// os/exec does not inherit the connection, and opens a client of its own.
package bccn

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Version of this package.
const Version = "0.1.0"

const (
	// The reader stops at so many bytes of messages that nobody has received; while a call waits for the daemon, it
	// stops only at backlogLimit.
	readAhead    = 256 * 1024
	backlogLimit = 64 * 1024 * 1024

	// A new link is given up with so many: what the daemon had queued comes before its answers.
	overflowLimit = 2 * backlogLimit

	// Bytes of the client's stream that wait for a program that never receives them: a part of readAhead, so that they
	// do not stop its callbacks.
	unclaimedLimit = readAhead / 4

	// About so many bytes belong to a message besides its payload.
	messageCost = 256
)

// The client outlives its connections, each of which is a link.
//
//	program <- Receive, Messages <- stream, of the client or a subscription <- run <- link <- daemon
//	program <- Request           <- exchange.replies                        <-/
//	program <- Subscribe, ...    <- query.done                              <-/
//
// Rules:
//  1. The client remembers name, options, watches and subscriptions; greeting sends all of them to a new link.
//  2. One goroutine, run, reads the link to its end and then makes a new one. It stops reading above readAhead, so that
//     messages wait in the bounded queue of the daemon. It keeps reading while a call waits for the daemon; otherwise
//     two programs that wait for each other would wait for ever. Callbacks and OnNotice run in goroutines of their own.
//  3. Every control request has exactly one answer, and answers come in the order of the requests. The gate sending
//     keeps asked in that order. An error about a SUB or UNSUB arrives before the answer to the request sent after it,
//     and belongs to that request.
//  4. The daemon answers a MSG only if it rejects it. The daemon has a message once a later request is answered.
//     Messages without such an answer are in doubt when the link breaks, and the next Barrier reports them.
//  5. A subscribe that fails leaves nothing. The client remembers a subscription once the daemon has agreed to it. If the
//     SUB of a failed call has left, it is withdrawn: an UNSUB and a ping follow, and until the pong the client drops the
//     messages that came for it alone. Close of a Subscription withdraws it in the same way.

// A Client is a connection of this program to the bus, which reconnects by itself.
type Client struct {
	options Options
	path    string
	life    context.Context // until Close
	end     context.CancelFunc
	closed  <-chan struct{} // of life
	ended   chan struct{}   // closed when the connection has ended for good: Options.NoReconnect
	sending gate            // of packets; taken before mu
	packing atomic.Int64    // bytes of a PACK; 0: packing is not agreed, or there is no link
	claimed atomic.Bool     // the program receives from the client's stream

	mu            sync.Mutex
	room          sync.Cond // signals that the reader may go on
	link          *link     // nil while there is none
	changed       chan struct{}
	unreachable   error // why there is no link
	notices       []Notice
	telling       bool // a goroutine calls OnNotice
	name          string
	wantedName    string
	heartbeat     string
	stream        stream
	over          error // why no stream gets more: errClosed or errEnded
	listening     bool  // without a callback
	hearing       bool  // listens, but only for replies
	listeners     []*Subscription
	subscriptions []*Subscription
	routed        int // subscriptions and listeners that have a stream or a callback of their own
	routes        map[string][]*stream
	lastChannel   string
	withdrawn     []*withdrawal
	watches       map[string]*watch // by pattern
	asked         []*query
	waiting       int // bytes in all streams
	pressing      int // how many calls wait for the daemon
	lost          uint64
	published     uint64
	confirmed     uint64
	inDoubt       uint64
	rejection     *Error // the first since the last barrier
	rejections    uint64
	token         string // the beginning of the token of each request
	requests      uint64
	exchanges     map[string]*exchange
}

// Open connects to the daemon at path: a file, "@name" (abstract), or "" for the usual places: $BCCN_SOCKET,
// /run/bccnd/bus.sock, $XDG_RUNTIME_DIR/bccnd/bus.sock. The context is that of Open alone. The errors are
// ErrUnavailable, ErrRefused, or the daemon's answer to the options.
func Open(ctx context.Context, path string, options Options) (*Client, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	c := &Client{
		options:     options.completed(),
		path:        path,
		wantedName:  options.Name,
		ended:       make(chan struct{}),
		sending:     make(gate, 1),
		unreachable: errGone,
		changed:     make(chan struct{}),
		stream:      newStream(),
		watches:     map[string]*watch{},
		token:       newToken(),
		exchanges:   map[string]*exchange{},
	}
	c.room.L = &c.mu
	c.life, c.end = context.WithCancel(context.Background())
	c.closed = c.life.Done()
	first, err := c.connect(ctx, time.Now().Add(options.Wait), false)
	if err != nil {
		c.end()
		return nil, err
	}
	go c.run(first)
	return c, nil
}

// Close closes the connection at once; call Barrier first to be sure that the daemon has everything. Calls that wait,
// and later ones, fail with ErrClosed. To close again does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
	c.finish(errClosed)
	if c.link != nil {
		c.link.conn.Close()
	}
	c.room.Signal()
	return nil
}

func (c *Client) isClosed() bool {
	select {
	case <-c.closed:
		return true
	default:
		return false
	}
}

// Name returns the client's src as others see it; without a connection, the last one.
func (c *Client) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// SetName takes another src, and keeps it over reconnections. Its errors are ErrBadName, ErrNameTaken and ErrRefused.
func (c *Client) SetName(ctx context.Context, name string) error {
	_, err := c.ask(ctx, "name", name, func(value string) { c.name, c.wantedName = value, name }, nil)
	return err
}

// Lost returns how many messages the daemon has dropped in all, because this program read too slowly.
func (c *Client) Lost() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.lost
}

// Heartbeat makes the daemon publish text on heartbeat/<name> every so many whole seconds, and "leaving" when the
// client disconnects. Another call changes the text, and 0 ends the heartbeats. They go on over reconnections.
func (c *Client) Heartbeat(ctx context.Context, every time.Duration, text string) error {
	if every%time.Second != 0 || every < 0 {
		return &Error{Code: ErrInvalid, Text: fmt.Sprintf("heartbeat every %v: must be whole seconds", every)}
	}
	value, wanted := "off", ""
	if every > 0 {
		value = strconv.Itoa(int(every / time.Second))
		if text != "" {
			value += " " + text
		}
		wanted = value
	}
	_, err := c.ask(ctx, "heartbeat", value, func(string) { c.heartbeat = wanted }, nil)
	return err
}

// Barrier returns once the daemon has processed everything sent before. Its error is the first that the daemon reported
// about a message since the last barrier, or ErrUnconfirmed if the connection broke in between and messages may be
// missing.
func (c *Client) Barrier(ctx context.Context) error {
	if _, err := c.ask(ctx, "ping", "", nil, nil); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	rejection, rejections, doubt := c.rejection, c.rejections, c.inDoubt
	c.rejection, c.rejections, c.inDoubt = nil, 0, 0
	switch {
	case rejections > 1:
		return &Error{Code: rejection.Code, Text: fmt.Sprintf("%s; %d more rejected", rejection.Text, rejections-1)}
	case rejections == 1:
		return rejection
	case doubt > 0:
		text := fmt.Sprintf("the daemon went away: up to %d messages may not have been published", doubt)
		return &Error{Code: ErrUnconfirmed, Text: text}
	}
	return nil
}

// Control makes any other control request of the protocol, and returns the value of its answer. A new connection does
// not repeat it.
func (c *Client) Control(ctx context.Context, key, value string) (string, error) {
	return c.ask(ctx, key, value, nil, nil)
}

// Status returns what the daemon says of itself, its settings and its counters: a JSON object, which grows with the
// daemon. It needs the right to observe, as Clients and Sources do.
func (c *Client) Status(ctx context.Context) (json.RawMessage, error) {
	answer, err := c.Control(ctx, "status", "")
	if err == nil && !json.Valid([]byte(answer)) {
		err = alien([]byte("CMSG status " + answer))
	}
	if err != nil {
		return nil, err
	}
	return json.RawMessage(answer), nil
}

// Clients returns the clients of the daemon: a JSON array of objects. Without the right to observe it has this client.
func (c *Client) Clients(ctx context.Context) (json.RawMessage, error) { return c.rows(ctx, "clients") }

// Sources returns the sources that the daemon hears on the segment: a JSON array of objects.
func (c *Client) Sources(ctx context.Context) (json.RawMessage, error) { return c.rows(ctx, "sources") }

// rows returns the rows of all pages.
func (c *Client) rows(ctx context.Context, key string) (json.RawMessage, error) {
	if ctx == nil {
		return nil, errNoContext
	}
	ctx, cancel := c.patience(ctx)
	defer cancel()
	all := []json.RawMessage{}
	for cursor := ""; ; {
		answer, err := c.Control(ctx, key, cursor)
		if err != nil {
			return nil, err
		}
		var page map[string]json.RawMessage
		var rows []json.RawMessage
		if json.Unmarshal([]byte(answer), &page) != nil || json.Unmarshal(page[key], &rows) != nil {
			return nil, alien([]byte("CMSG " + key + " " + answer))
		}
		all = append(all, rows...)
		next := strings.TrimSpace(string(page["next"]))
		if next == "" || next == "null" {
			return json.Marshal(all)
		}
		if cursor = next; json.Unmarshal(page["next"], &next) == nil {
			cursor = next // a text; otherwise a number
		}
	}
}
