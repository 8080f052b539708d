// Package bccn is the client of the bccnd bus: LISTEN/NOTIFY between the programs of a host and of its network segment.
//
//	bus, err := bccn.Open("", bccn.Options{})
//	if err != nil {
//		log.Fatal(err)
//	}
//	defer bus.Close()
//	err = bus.Subscribe(ctx, "demo/>")
//	err = bus.Publish("demo/greeting", []byte("hello"))
//	for message := range bus.Messages() {
//		fmt.Println(message.Channel, message.Text())
//	}
//
// Many goroutines may use a Client. It reconnects by itself when the daemon goes away, with every subscription and
// setting. A call that waits for the daemon waits until its context ends, or for Options.Timeout if the context has no
// deadline. Errors are of type *Error, and errors.Is knows their Code; when its context ends, Receive and Serve return
// the error of that context.
//
// A Go program cannot fork, so nothing here is for a child that shares its parent's client. A program started with
// os/exec does not inherit the connection, and opens a client of its own.
package bccn

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"
)

// Version of this package.
const Version = "0.1.0"

// Options of a client; the zero value is a plain one.
type Options struct {
	Name      string        // own src; "": the daemon gives <host>/<program>/<pid>
	Full      bool          // messages have Src, Seq, Peer, Time and Verdict
	Pack      bool          // several messages share a packet, both ways: bursts are many times faster
	NoEcho    bool          // own messages that match are not received
	Tap       bool          // every datagram of the segment is received, too (needs the right to tap)
	Separator string        // of the tokens in patterns: "/" (also "") or "."
	Queue     string        // what may wait in the daemon: "packets=1000 bytes=1000000 policy=block", or a part of it
	Timeout   time.Duration // how long a call waits for the daemon; 0: five seconds
	Wait      time.Duration // how long Open keeps trying

	// OnNotice gets the notices about the connection. The goroutine that reads the connection calls it: it may publish,
	// but must not ask (Barrier, Subscribe, ...) nor receive. If it is nil, notices are warnings of log/slog.
	OnNotice func(Notice)
}

// A Notice reports something that happened to the connection.
//
//	Kind          meaning                                                        Count
//	lost          the daemon dropped messages: this program read too slowly      how many
//	rejected      the daemon rejected a message, or a setting on a reconnection  1; Err says why
//	revoked       the daemon took back a right, and what rested on it has ended  1
//	closing       the daemon closes the connection; Text says why                0
//	disconnected  the connection ended                                           messages perhaps not taken
//	reconnected   there is a connection again, with every subscription           0
type Notice struct {
	Kind  string
	Text  string // a line for people
	Count uint64
	Err   error
}

func (n Notice) String() string { return n.Text }

const (
	defaultTimeout = 5 * time.Second

	// The reader stops at so many bytes of messages that nobody has received; while a call waits for the daemon, it
	// stops only at backlogLimit.
	readAhead    = 256 * 1024
	backlogLimit = 64 * 1024 * 1024

	// About so many bytes belong to a message besides its payload.
	messageCost = 256
)

// The client outlives its connections, each of which is a link.
//
//	program <- Receive, Messages <- inbox              <- run <- link <- daemon
//	program <- Request           <- exchange.answers   <-/
//	program <- Subscribe, ...    <- query.done         <-/
//
// Rules:
//  1. The client remembers name, options and subscriptions; greeting sends all of them to a new link.
//  2. One goroutine, run, reads the link to its end and then makes a new one. It stops reading above readAhead, so that
//     messages wait in the bounded queue of the daemon. It keeps reading while a call waits for the daemon; otherwise
//     two programs that wait for each other would wait for ever.
//  3. Every request has exactly one answer, and answers come in the order of the requests. The lock sending keeps asked
//     in that order. An error about a SUB or UNSUB arrives before the answer to the request sent after it, and belongs
//     to that request.
//  4. The daemon answers a MSG only if it rejects it. The daemon has a message once a later request is answered.
//     Messages without such an answer are in doubt when the link breaks, and the next Barrier reports them.
//  5. A subscribe that fails leaves nothing. The client remembers a pattern once the daemon has agreed to it. If the SUB
//     of a failed call has left, it is withdrawn: an UNSUB and a ping follow, and until the pong the client drops the
//     messages that came for it alone.

// A Client is a connection of this program to the bus, which reconnects by itself.
type Client struct {
	options Options
	address string
	closed  chan struct{}
	inbox   queue
	forward sync.Once
	channel chan Message

	sending sync.Mutex // of packets; taken before mu

	mu            sync.Mutex
	room          sync.Cond // signals that the reader may go on
	link          *link     // nil while there is none
	changed       chan struct{}
	unreachable   error // why there is no link
	notices       []Notice
	name          string
	wantedName    string
	heartbeat     string
	listening     bool
	hearing       bool // listens, but only for answers
	subscriptions []string
	withdrawn     []*withdrawal
	asked         []*query
	waiting       int // bytes in all queues
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

// Open connects to the daemon at address: a path, "@name" (abstract), or "" for the usual places: $BCCN_SOCKET,
// /run/bccnd/bus.sock, $XDG_RUNTIME_DIR/bccnd/bus.sock. Its errors are Unavailable, Refused, or the daemon's answer to
// the options.
func Open(address string, options Options) (*Client, error) {
	if options.Timeout == 0 {
		options.Timeout = defaultTimeout
	}
	if options.Separator == "" {
		options.Separator = "/"
	}
	if options.OnNotice == nil {
		options.OnNotice = func(notice Notice) { slog.Warn("bccn: " + notice.Text) }
	}
	c := &Client{
		unreachable: errGone,
		options:     options,
		address:     address,
		wantedName:  options.Name,
		closed:      make(chan struct{}),
		changed:     make(chan struct{}),
		inbox:       newQueue(),
		channel:     make(chan Message),
		token:       newToken(),
		exchanges:   map[string]*exchange{},
	}
	c.room.L = &c.mu
	first, err := c.connect(time.Now().Add(options.Wait), false)
	if err != nil {
		return nil, err
	}
	go c.run(first)
	return c, nil
}

// Close closes the connection at once; call Barrier first to be sure that everything has arrived. Calls that wait fail
// with Closed.
func (c *Client) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isClosed() {
		close(c.closed)
		if c.link != nil {
			c.link.conn.Close()
		}
		c.room.Signal()
	}
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

// Whoami asks the daemon for the client's src.
func (c *Client) Whoami(ctx context.Context) (string, error) {
	return c.ask(ctx, "whoami", "", func(value string) { c.name = value }, nil)
}

// SetName takes another src, and keeps it over reconnections. Its errors are BadName, NameTaken and Refused.
func (c *Client) SetName(ctx context.Context, name string) error {
	_, err := c.ask(ctx, "name", name, func(value string) { c.name, c.wantedName = value, name }, nil)
	return err
}

// Heartbeat makes the daemon publish text on heartbeat/<name> every so many whole seconds, and "leaving" when the
// client disconnects. Another call changes the text, and 0 ends the heartbeats. They go on over reconnections.
func (c *Client) Heartbeat(ctx context.Context, every time.Duration, text string) error {
	if every%time.Second != 0 || every < 0 {
		return &Error{Code: Invalid, Text: fmt.Sprintf("heartbeat every %v: must be whole seconds", every)}
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

// Control sends any control request of the protocol and returns its answer. A new connection does not repeat it.
func (c *Client) Control(ctx context.Context, key, value string) (string, error) {
	return c.ask(ctx, key, value, nil, nil)
}

// Barrier returns once the daemon has processed everything sent before. Its error is the first that the daemon reported
// about a message since the last barrier, or Unconfirmed if the connection broke in between and messages may be
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
		return &Error{Code: Unconfirmed, Text: text}
	}
	return nil
}

// --- publishing ---

// Publish hands one message to the daemon. It waits only while the daemon is away or takes no more, up to
// Options.Timeout; after an error the message was not sent. If the daemon then rejects the message, a notice says so,
// and the next Barrier fails.
func (c *Client) Publish(channel string, payload []byte) error {
	return c.publish(channel, "", payload)
}

// SendTopic is Publish under the other name that BCCN1 programs use.
func (c *Client) SendTopic(channel string, payload []byte) error {
	return c.publish(channel, "", payload)
}

// SendAll publishes to every listening program of the segment.
func (c *Client) SendAll(payload []byte) error { return c.publish("!", "", payload) }

// SendTo publishes to the program whose src is target, or to all programs below it.
func (c *Client) SendTo(target string, payload []byte) error {
	return c.publish("!"+target, "", payload)
}

var buffers = sync.Pool{New: func() any { return new([]byte) }}

func (c *Client) publish(channel, head string, payload []byte) error {
	buffer := buffers.Get().(*[]byte)
	defer buffers.Put(buffer)
	packet, err := appendMsg((*buffer)[:0], channel, head, payload)
	if err != nil {
		return err
	}
	*buffer = packet
	return c.transmit(packet, 1)
}

// A Batch gathers messages into as few packets as possible, if packing was agreed (Options.Pack); otherwise they go one
// by one. One goroutine uses it.
type Batch struct {
	client   *Client
	packet   []byte
	messages uint64
}

// Batch returns an empty batch.
func (c *Client) Batch() *Batch { return &Batch{client: c} }

// Publish adds a message, and sends the packet when it is full. Its errors are those of Client.Publish, about any
// message of the batch.
func (b *Batch) Publish(channel string, payload []byte) error {
	size, limit := len("MSG \x00")+len(channel)+len(payload), b.client.packLimit()
	if b.messages > 0 && len(b.packet)+lengthSize+size > limit {
		if err := b.Flush(); err != nil {
			return err
		}
	}
	if len(packPrefix)+lengthSize+size > limit {
		return b.client.Publish(channel, payload)
	}
	if b.messages == 0 {
		b.packet = append(b.packet[:0], packPrefix...)
	}
	packet, err := appendMsg(binary.BigEndian.AppendUint32(b.packet, uint32(size)), channel, "", payload)
	if err == nil {
		b.packet = packet
		b.messages++
	}
	return err
}

// Flush hands the rest of the batch to the daemon, and empties it.
func (b *Batch) Flush() error {
	messages := b.messages
	b.messages = 0
	switch {
	case messages > 1 && len(b.packet) <= b.client.packLimit():
		return b.client.transmit(b.packet, messages)
	case messages > 0:
		return unpack(b.packet, func(packet []byte) error { return b.client.transmit(packet, 1) })
	}
	return nil
}

func (c *Client) packLimit() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.link == nil {
		return 0
	}
	return c.link.packLimit
}

// --- subscribing and receiving ---

// Subscribe subscribes to pattern, and returns when the subscription is in force. After an error, also that of a context
// that ends, there is none.
func (c *Client) Subscribe(ctx context.Context, pattern string) error {
	packet, err := buildSub("SUB", pattern)
	if err != nil {
		return err
	}
	granted := func(string) { c.subscriptions = append(c.subscriptions, pattern) }
	_, err = c.ask(ctx, "ping", "", granted, func(asked *query) { asked.before, asked.pattern = packet, pattern })
	return err
}

// Unsubscribe takes back one subscription to pattern. It ends the subscription even if the daemon does not answer.
func (c *Client) Unsubscribe(ctx context.Context, pattern string) error {
	packet, err := buildSub("UNSUB", pattern)
	if err != nil {
		return err
	}
	c.mu.Lock()
	l, err := c.link, c.forget(pattern)
	if l == nil && err == nil { // a greeting that is on its way may have it; any later one has not
		c.withdrawn = append(c.withdrawn, &withdrawal{pattern: pattern})
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	said := func() bool { return false }
	_, err = c.ask(ctx, "ping", "", nil, func(asked *query) {
		if c.link == l {
			asked.before, said = packet, func() bool { return asked.said }
		}
	})
	if err != nil && l != nil && !said() {
		c.withdraw(l, pattern)
	}
	return err
}

// forget removes the last subscription to pattern; under mu.
func (c *Client) forget(pattern string) error {
	for i := len(c.subscriptions) - 1; i >= 0; i-- {
		if c.subscriptions[i] == pattern {
			c.subscriptions = append(c.subscriptions[:i], c.subscriptions[i+1:]...)
			return nil
		}
	}
	return &Error{Code: Invalid, Text: fmt.Sprintf("pattern %q: not subscribed", pattern)}
}

// Listen makes the client receive messages to all ("!") and to this program. Any subscription does that, too.
func (c *Client) Listen(ctx context.Context) error {
	_, err := c.ask(ctx, "listen", "", func(string) { c.listening = true }, nil)
	return err
}

// Receive returns the next message, or ctx.Err() if ctx ends first. If ctx has already ended, Receive still returns a
// message that is there. While the daemon is away it waits.
func (c *Client) Receive(ctx context.Context) (Message, error) { return c.next(ctx, &c.inbox) }

// Messages returns a channel of the messages, which is closed with the client. Receive no longer returns a message that
// is in the channel.
func (c *Client) Messages() <-chan Message {
	c.forward.Do(func() {
		go func() {
			defer close(c.channel)
			for {
				message, err := c.Receive(context.Background())
				if err != nil {
					return
				}
				select {
				case c.channel <- message:
				case <-c.closed:
					return
				}
			}
		}()
	})
	return c.channel
}

// A queue holds messages until they are received. Client.mu guards it, except for wake, which holds a token when there
// are messages.
type queue struct {
	messages []Message
	first    int
	came     uint64 // messages, ever
	wake     chan struct{}
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (c *Client) put(q *queue, message Message) {
	if q.first > 0 && len(q.messages) == cap(q.messages) {
		q.messages = q.messages[:copy(q.messages, q.messages[q.first:])]
		q.first = 0
	}
	q.messages = append(q.messages, message)
	q.came++
	c.waiting += len(message.Payload) + messageCost
	q.ring()
}

func (q *queue) ring() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (c *Client) take(q *queue) (message Message, ok bool) {
	if q.first == len(q.messages) {
		return Message{}, false
	}
	message, q.messages[q.first] = q.messages[q.first], Message{}
	q.first++
	if q.first < len(q.messages) {
		q.ring() // another call may wait, too
	} else {
		q.messages, q.first = q.messages[:0], 0
	}
	c.waiting -= len(message.Payload) + messageCost
	c.room.Signal()
	return message, true
}

func (c *Client) next(ctx context.Context, q *queue) (Message, error) {
	for {
		c.mu.Lock()
		message, ok := c.take(q)
		c.mu.Unlock()
		if c.isClosed() {
			return Message{}, errClosed
		}
		if ok {
			return message, nil
		}
		select {
		case <-q.wake:
		case <-c.closed:
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}
