package bccn

import (
	"context"
	"iter"
	"slices"
	"strings"
	"sync"
)

// The pattern of those who listen. No SUB has it: the daemon refuses it.
const listener = "!"

var (
	errNotOpen  = &Error{Code: ErrClosed, Text: "the subscription is closed"}
	errCallback = &Error{Code: ErrInvalid, Text: "the messages of this subscription go to its callback"}
)

// A SubscribeOption is an argument of Subscribe and Listen.
type SubscribeOption func(*Subscription)

// Callback has function called with each message. It runs in a goroutine of its own: one message at a time, in order. A
// slow one holds nobody else as long as not too much waits for the program in all, 256 KiB; then the client reads no
// more, and what comes waits in the queue of the daemon (Options.Queue). It may call any function of this package.
func Callback(function func(Message)) SubscribeOption {
	return func(s *Subscription) {
		s.callback, s.apart, s.stream.called = function, function != nil, function != nil
	}
}

// A Subscription is one subscription to a pattern. It lasts until Close, even if the program keeps no reference to it.
//
// Without a callback its messages are in the client's stream, in the order of all, until the program asks the
// Subscription itself for messages, with Receive or Messages: from then on they are in a stream of its own, and what
// waits in the client's stream moves over.
type Subscription struct {
	client   *Client
	pattern  string
	callback func(Message)

	parting sync.Once

	// Client.mu guards the others.
	stream stream
	apart  bool // the messages go to this stream, and not to that of the client
	since  uint64
	closed bool
}

func (c *Client) newSubscription(pattern string, options []SubscribeOption) *Subscription {
	s := &Subscription{client: c, pattern: pattern, stream: newStream()}
	for _, option := range options {
		if option != nil {
			option(s)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	s.since = c.stream.came
	if s.apart {
		c.routed++
	}
	return s
}

// Subscribe subscribes to pattern, and returns when the subscription is in force. After an error, also that of a context
// that ends, there is none.
func (c *Client) Subscribe(ctx context.Context, pattern string, options ...SubscribeOption) (*Subscription, error) {
	packet, err := buildSub("SUB", pattern)
	if err != nil {
		return nil, err
	}
	s := c.newSubscription(pattern, options)
	granted := func(string) { c.subscriptions = append(c.subscriptions, s) }
	prepare := func(asked *query) {
		asked.before, asked.subscription, asked.undo = packet, s, &withdrawal{pattern: pattern}
	}
	_, err = c.ask(ctx, "ping", "", granted, prepare)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(s)
		c.sift(&c.stream, func(number uint64, message *Message) bool {
			return number <= s.since || !c.matches(pattern, message.Channel) || !c.isStray(message.Channel)
		})
		return nil, err
	}
	s.run()
	return s, nil
}

// Listen makes the client receive messages to all ("!") and to this program. Any subscription does that, too. Without a
// callback they are in the client's stream.
func (c *Client) Listen(ctx context.Context, options ...SubscribeOption) error {
	_, err := c.listen(ctx, options...)
	return err
}

func (c *Client) listen(ctx context.Context, options ...SubscribeOption) (*Subscription, error) {
	s := c.newSubscription(listener, options)
	granted := func(string) {
		if c.routes = nil; s.apart {
			c.listeners = append(c.listeners, s)
		} else {
			c.listening = true
		}
	}
	_, err := c.ask(ctx, "listen", "", granted, nil)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.drop(s)
		return nil, err
	}
	s.run()
	return s, nil
}

// run starts the goroutine of a callback.
func (s *Subscription) run() {
	if s.callback == nil {
		return
	}
	go func() {
		for {
			message, err := s.client.next(context.Background(), &s.stream)
			if err != nil {
				return
			}
			s.callback(message)
			s.client.mu.Lock()
			s.stream.busy--
			s.client.mu.Unlock()
		}
	}()
}

// drop forgets the stream of a subscription; under mu.
func (c *Client) drop(s *Subscription) {
	if s.closed = true; s.apart {
		c.routed--
	}
	c.routes = nil
	c.discard(&s.stream)
	s.stream.over = errNotOpen
	s.stream.ring()
	close(s.stream.done)
}

// Pattern returns what was subscribed to.
func (s *Subscription) Pattern() string { return s.pattern }

// Pending returns how many messages wait for the callback, with the one that it is called with, or in the stream of the
// subscription.
func (s *Subscription) Pending() int {
	s.client.mu.Lock()
	defer s.client.mu.Unlock()
	return s.stream.length() + s.stream.busy
}

// Receive returns the next message of the subscription, or ctx.Err() if ctx ends first; see Client.Receive.
func (s *Subscription) Receive(ctx context.Context) (Message, error) {
	if s.callback != nil {
		return Message{}, errCallback
	}
	s.parting.Do(s.part)
	return s.client.next(ctx, &s.stream)
}

// Messages returns a channel of the messages of the subscription. It is closed with the subscription, and empty if there
// is a callback. Receive no longer returns a message that is in the channel.
func (s *Subscription) Messages() <-chan Message {
	if s.callback != nil {
		none := make(chan Message)
		close(none)
		return none
	}
	s.parting.Do(s.part)
	return s.client.messagesOf(&s.stream)
}

// part gives the subscription a stream of its own, with what waits for it in that of the client.
func (s *Subscription) part() {
	c := s.client
	c.mu.Lock()
	defer c.mu.Unlock()
	if s.closed {
		return
	}
	s.apart = true
	c.routed++
	c.routes = nil
	since := c.stream.lost // the last message that waits
	c.sift(&c.stream, func(_ uint64, message *Message) bool {
		s.stream.lost += message.Lost
		if !c.matches(s.pattern, message.Channel) || message.isRejected() {
			return true
		}
		c.put(&s.stream, message)
		return slices.Contains(c.route(message.Channel), &c.stream)
	})
	s.stream.lost += since
}

// Close ends the subscription at once, even if it fails: what waits for it is dropped, and no call of the callback
// begins any more. It returns when the daemon has ended it, too. To close again does nothing.
func (s *Subscription) Close(ctx context.Context) error {
	c := s.client
	c.mu.Lock()
	if s.closed {
		c.mu.Unlock()
		return nil
	}
	c.drop(s)
	isThis := func(other *Subscription) bool { return other == s }
	if s.pattern == listener {
		c.listeners = slices.DeleteFunc(c.listeners, isThis)
		c.hearing = true // the daemon delivers on: only replies count
	}
	if s.pattern == listener || c.isClosed() {
		c.mu.Unlock()
		return nil
	}
	c.subscriptions = slices.DeleteFunc(c.subscriptions, isThis)
	c.withdrawn = append(c.withdrawn, &withdrawal{pattern: s.pattern})
	c.mu.Unlock()
	_, err := c.ask(ctx, "ping", "", nil, nil) // the UNSUB goes before it
	return err
}

// everySubscription goes over those that are held, and those that the daemon has been asked for; under mu.
func (c *Client) everySubscription() iter.Seq[*Subscription] {
	return func(yield func(*Subscription) bool) {
		for _, s := range c.subscriptions {
			if !yield(s) {
				return
			}
		}
		for _, asked := range c.asked {
			if asked.subscription != nil && asked.granted != nil && !yield(asked.subscription) {
				return
			}
		}
	}
}

func (c *Client) matches(pattern, channel string) bool {
	return Matches(pattern, channel, c.options.Separator)
}

// --- subscriptions that are withdrawn ---

// A withdrawal is an UNSUB, and the ping behind it, for which nobody need wait; or the request that ends a watch.
// Client.mu guards the list; what has left is written under sending.
type withdrawal struct {
	pattern string
	watch   bool
	said    bool // the UNSUB has left
	asked   bool // the ping or the request, too
}

// giveUp ends a query that nobody waits for any more, and withdraws its SUB or watch. It reports whether the query was
// answered just before.
func (c *Client) giveUp(l *link, asked *query) (answered bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case <-asked.done:
		return asked.err != errGone
	default:
	}
	asked.granted, c.routes = nil, nil
	if asked.undo != nil && asked.said && c.link == l {
		c.withdrawn = append(c.withdrawn, asked.undo)
	}
	return false
}

// takeBack sends what is left to send of withdrawals; under sending.
func (c *Client) takeBack(ctx context.Context, l *link) error {
	c.mu.Lock()
	withdrawn := slices.DeleteFunc(slices.Clone(c.withdrawn), func(each *withdrawal) bool {
		return each.asked || each.watch && c.isWatching(each.pattern)
	})
	c.mu.Unlock()
	for _, each := range withdrawn {
		if !each.watch && !each.said {
			if err := c.send(ctx, l, []byte("UNSUB "+each.pattern)); err != nil {
				return err
			}
			each.said = true
		}
		key, value := "ping", ""
		if each.watch {
			key, value = "unwatch", each.pattern
		}
		end := newQuery(key, nil)
		end.settled = func() { c.settle(each) }
		if err := c.enqueue(l, end, nil); err != nil {
			return err
		}
		packet, _ := buildControl(key, value)
		if err := c.send(ctx, l, packet); err != nil {
			c.dequeue(end)
			return err
		}
		c.mu.Lock()
		each.asked = true
		c.mu.Unlock()
	}
	return nil
}

// takeBackSoon sends what there is room for, unless another goroutine sends: the reader tries again.
func (c *Client) takeBackSoon(l *link) {
	c.mu.Lock()
	pending := l != nil && c.link == l && slices.ContainsFunc(c.withdrawn, func(each *withdrawal) bool { return !each.asked })
	c.mu.Unlock()
	if pending && c.sending.try() {
		now, cancel := context.WithDeadline(context.Background(), past)
		_ = c.takeBack(now, l)
		cancel()
		c.sending.leave()
	}
}

// settle forgets a withdrawal that the daemon has processed; under mu.
func (c *Client) settle(done *withdrawal) {
	c.withdrawn = slices.DeleteFunc(c.withdrawn, func(each *withdrawal) bool { return each == done })
}

// isUnwanted reports whether a message came for nothing but a subscription that was withdrawn; under mu.
func (c *Client) isUnwanted(channel string) bool {
	return len(c.withdrawn) > 0 && c.isStray(channel) &&
		slices.ContainsFunc(c.withdrawn, func(each *withdrawal) bool {
			return !each.watch && c.matches(each.pattern, channel)
		})
}

// isStray reports whether a message came for no subscription, nor as one to this program or by a tap; under mu.
func (c *Client) isStray(channel string) bool {
	if c.options.Tap != TapOff || strings.HasPrefix(channel, "!") {
		return false
	}
	for s := range c.everySubscription() {
		if c.matches(s.pattern, channel) {
			return false
		}
	}
	return true
}
