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
// A Client may be used by many goroutines. It connects again by itself when the daemon goes away, with every
// subscription and setting; what waits for the daemon waits until its context ends, or Options.Timeout where that has no
// deadline. Errors are of type *Error, and errors.Is knows their Code; but the end of a context that was waited for with
// Receive or Serve is that context's error.
//
// A Go program cannot fork: there is nothing here for a child that shares its parent's client. A program started with
// os/exec opens a client of its own; the connection is not inherited.
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
	Name      string        // own src; "": the daemon's <host>/<program>/<pid>
	Full      bool          // messages with Src, Seq, Peer, Time and Verdict
	Pack      bool          // many messages in one packet, both ways: many times the throughput for bursts
	NoEcho    bool          // own messages that match are not received
	Tap       bool          // every datagram of the segment, too (needs the right)
	Separator string        // of the tokens in patterns: "/" (also "") or "."
	Queue     string        // the daemon's queue for us: "packets=1000 bytes=1000000 policy=drop-oldest", or parts of it
	Timeout   time.Duration // for the daemon: to be there again, to answer, to take a message; 0: five seconds
	Wait      time.Duration // how long Open keeps trying

	// OnNotice is told what happens to the connection, by the goroutine that reads it: it may publish, but must not ask
	// (Barrier, Subscribe, ...) nor receive. nil: notices are warnings of log/slog.
	OnNotice func(Notice)
}

// A Notice is something that happened to the connection.
//
//	Kind          what                                                      Count
//	lost          the daemon dropped messages for this slow reader          how many
//	rejected      something published, or wanted again, was not taken       1; Err says why
//	revoked       a right was taken back, and what rests on it has ended    1
//	closing       the daemon says that it closes the connection, and why    0
//	disconnected  the connection ended                                      published, perhaps not taken
//	reconnected   there is one again, with every subscription in force      0
type Notice struct {
	Kind  string
	Text  string // a line for people
	Count uint64
	Err   error
}

func (n Notice) String() string { return n.Text }

const (
	defaultTimeout = 5 * time.Second
	readAhead      = 256 * 1024       // bytes of messages read before anybody asks for them
	backlogLimit   = 64 * 1024 * 1024 // the same, while somebody waits for the daemon
	messageCost    = 256              // bytes of a message apart from its payload, about
)

// Rules:
//  1. What is wanted (name, options, subscriptions, ...) is kept here and outlives a link, which is one connection;
//     greeting says all of it to a new one.
//  2. One goroutine, run, reads the link to its end and then makes a new one. It stops reading above readAhead, so that
//     the daemon's queue, which is bounded, holds what nobody receives; it goes on while somebody waits for the daemon,
//     or two who wait for each other would wait for ever.
//  3. Every request has exactly one answer, and answers come in the order of requests: sending keeps asked in that order.
//     Complaints about SUB and UNSUB arrive before the answer to the request sent after them, and belong to it.
//  4. A MSG is answered only when it is rejected. It is known to be with the daemon once a later request is answered; what
//     was not known when the link broke is in doubt, and the next Barrier says so.

// A Client is a program's place on the bus of its host.
type Client struct {
	options Options
	address string
	closed  chan struct{}
	inbox   queue
	forward sync.Once
	channel chan Message

	sending sync.Mutex // of packets; taken before mu

	mu            sync.Mutex
	room          sync.Cond // there is less to receive, or more reason to read
	link          *link     // nil while there is none
	changed       chan struct{}
	unreachable   error // why there is no link
	notices       []Notice
	name          string
	wantedName    string
	heartbeat     string
	listening     bool
	hearing       bool // listening, but only for answers
	subscriptions []string
	asked         []*query
	waiting       int // bytes in all queues
	pressing      int // who waits for the daemon
	lost          uint64
	published     uint64
	confirmed     uint64
	inDoubt       uint64
	rejection     *Error // the first since the last barrier
	rejections    uint64
	token         string // what the tokens of our requests begin with
	requests      uint64
	exchanges     map[string]*exchange
}

// Open connects to the daemon at address: a path, "@name" (abstract), or "": $BCCN_SOCKET, else /run/bccnd/bus.sock,
// else that of $XDG_RUNTIME_DIR. Errors: Unavailable, Refused, or what the daemon has against the options.
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

// Close lets go of the connection at once: call Barrier first to know that all has arrived. Who waits gets Closed.
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

// Name is the own src, as others see it; while there is no connection the last one.
func (c *Client) Name() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.name
}

// Whoami asks the daemon for the own src.
func (c *Client) Whoami(ctx context.Context) (string, error) {
	return c.ask(ctx, "whoami", "", func(value string) { c.name = value }, nil)
}

// SetName takes another src; kept over reconnections. Errors: BadName, NameTaken, Refused.
func (c *Client) SetName(ctx context.Context, name string) error {
	_, err := c.ask(ctx, "name", name, func(value string) { c.name, c.wantedName = value, name }, nil)
	return err
}

// Heartbeat has the daemon say on heartbeat/<name> every so many (whole) seconds that we are there, and "leaving" when we
// leave. text says how we are; another call changes it, 0 ends it. Kept over reconnections.
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

// Control is any control request of the protocol; its answer. It is not said again to a new connection.
func (c *Client) Control(ctx context.Context, key, value string) (string, error) {
	return c.ask(ctx, key, value, nil, nil)
}

// Barrier returns once the daemon has processed everything sent before. Its error is the first that the daemon had
// against a message since the last barrier; Unconfirmed when the connection broke in between and messages may be missing.
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
		return &Error{Code: rejection.Code, Text: fmt.Sprintf("%s; so were %d more", rejection.Text, rejections-1)}
	case rejections == 1:
		return rejection
	case doubt > 0:
		text := fmt.Sprintf("the daemon went away: up to %d messages may not have been published", doubt)
		return &Error{Code: Unconfirmed, Text: text}
	}
	return nil
}

// --- publishing ---

// Publish hands one message to the daemon; it waits only while that is away or takes no more, up to Options.Timeout.
// What the daemon then rejects is a notice, and an error of the next Barrier. After an error it was not sent.
func (c *Client) Publish(channel string, payload []byte) error {
	return c.publish(channel, "", payload)
}

// SendTopic is the name of Publish in the document of the protocol.
func (c *Client) SendTopic(channel string, payload []byte) error {
	return c.publish(channel, "", payload)
}

// SendAll publishes to every listening program of the segment.
func (c *Client) SendAll(payload []byte) error { return c.publish("!", "", payload) }

// SendTo publishes to the program whose src is target, or to all below it.
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

// A Batch gathers messages into as few packets as can be, where Options.Pack was agreed; otherwise they go one by one.
// It is for one goroutine.
type Batch struct {
	client   *Client
	packet   []byte
	messages uint64
}

// Batch begins one.
func (c *Client) Batch() *Batch { return &Batch{client: c} }

// Publish adds a message, and sends what is full. Errors are those of Client.Publish, about any message of the batch.
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

// Flush hands what is left to the daemon, and begins anew.
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

// Subscribe returns when the subscription is in force.
func (c *Client) Subscribe(ctx context.Context, pattern string) error {
	packet, err := buildSub("SUB", pattern)
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, "ping", "", nil, func() ([]byte, error) {
		c.subscriptions = append(c.subscriptions, pattern)
		return packet, nil
	})
	if err != nil && !isCode(err, Timeout, Unavailable, Backlog, Closed) { // the daemon said no
		c.mu.Lock()
		_ = c.forget(pattern)
		c.mu.Unlock()
	}
	return err
}

// Unsubscribe takes back one Subscribe of that pattern.
func (c *Client) Unsubscribe(ctx context.Context, pattern string) error {
	packet, err := buildSub("UNSUB", pattern)
	if err != nil {
		return err
	}
	_, err = c.ask(ctx, "ping", "", nil, func() ([]byte, error) { return packet, c.forget(pattern) })
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

// Listen receives messages to all ("!") and to this program; who subscribes to anything does anyway.
func (c *Client) Listen(ctx context.Context) error {
	_, err := c.ask(ctx, "listen", "", func(string) { c.listening = true }, nil)
	return err
}

// Receive returns the next message; when ctx ends first, ctx.Err(). With a ctx that has ended it returns what is there
// already. While the daemon is away it waits.
func (c *Client) Receive(ctx context.Context) (Message, error) { return c.next(ctx, &c.inbox) }

// Messages is the same as a channel, closed with the client. A message in the channel is not for Receive any more.
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

// A queue holds messages for who receives them; under Client.mu but for wake, which holds a token when there are some.
type queue struct {
	messages []Message
	first    int
	wake     chan struct{}
}

func newQueue() queue { return queue{wake: make(chan struct{}, 1)} }

func (c *Client) put(q *queue, message Message) {
	if q.first > 0 && len(q.messages) == cap(q.messages) {
		q.messages = q.messages[:copy(q.messages, q.messages[q.first:])]
		q.first = 0
	}
	q.messages = append(q.messages, message)
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
		q.ring() // for another who waits
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
