package bccn

import (
	"context"
	"strings"
	"sync"
)

// A stream holds messages until they are received: those of the client, of a subscription with a stream or a callback of
// its own, or of a request. Client.mu guards it, except for wake, which holds a token when there are messages.
type stream struct {
	messages []Message
	first    int
	size     int    // bytes
	came     uint64 // messages, ever
	lost     uint64 // messages that the daemon dropped since the last one
	called   bool   // a callback takes them
	busy     int    // of these, what the callback has in hand
	wake     chan struct{}
	done     chan struct{} // closed when nobody wants more
	over     error         // why, then

	forward sync.Once
	channel chan Message
}

func newStream() stream {
	return stream{wake: make(chan struct{}, 1), done: make(chan struct{}), channel: make(chan Message)}
}

func (s *stream) length() int { return len(s.messages) - s.first }

func (s *stream) ring() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// costOf counts the payload once: it lies in the datagram, of which a tap also gets some without a payload.
func costOf(message *Message) int {
	return max(len(message.Payload), len(message.Datagram)) + messageCost
}

// put, take and the functions below that return no error run under mu.
func (c *Client) put(s *stream, message *Message) {
	if s.first > 0 && len(s.messages) == cap(s.messages) {
		s.messages = s.messages[:copy(s.messages, s.messages[s.first:])]
		s.first = 0
	}
	s.messages = append(s.messages, *message)
	s.messages[len(s.messages)-1].Lost, s.lost = s.lost, 0
	s.came++
	c.hold(s, costOf(message))
	s.ring()
}

func (c *Client) take(s *stream) (message Message, ok bool) {
	if s.first == len(s.messages) {
		return Message{}, false
	}
	message, s.messages[s.first] = s.messages[s.first], Message{}
	s.first++
	if s.first < len(s.messages) {
		s.ring() // another call may wait, too
	} else {
		s.messages, s.first = s.messages[:0], 0
	}
	c.hold(s, -costOf(&message))
	if s.called {
		s.busy++
	}
	return message, true
}

// hold accounts for so many bytes more, or less, that wait in a stream.
func (c *Client) hold(s *stream, bytes int) {
	s.size += bytes
	c.waiting += bytes
	if bytes < 0 {
		c.room.Signal()
	}
}

// discard drops all that waits in a stream, and returns how much it was.
func (c *Client) discard(s *stream) (dropped uint64) {
	for _, message := range s.messages[s.first:] {
		s.lost += message.Lost
	}
	dropped = uint64(s.length())
	s.messages, s.first = nil, 0
	c.hold(s, -s.size)
	return dropped
}

// sift keeps those messages of a stream for which keep says so.
func (c *Client) sift(s *stream, keep func(number uint64, message *Message) bool) {
	var kept []Message
	lost, number := uint64(0), s.came-uint64(s.length())
	for _, message := range s.messages[s.first:] {
		if number++; keep(number, &message) {
			message.Lost, lost = message.Lost+lost, 0
			kept = append(kept, message)
		} else {
			lost += message.Lost
			c.hold(s, -costOf(&message))
		}
	}
	s.lost += lost
	s.messages, s.first = kept, 0
}

// next returns the next message of a stream; it waits until ctx ends.
func (c *Client) next(ctx context.Context, s *stream) (Message, error) {
	if ctx == nil {
		return Message{}, errNoContext
	}
	for {
		c.mu.Lock()
		if c.over == errClosed {
			s.ring() // another call may wait, too
			c.mu.Unlock()
			return Message{}, errClosed
		}
		message, ok := c.take(s)
		over := s.over
		if over == nil {
			over = c.over
		}
		if !ok && over != nil {
			s.ring()
		}
		c.mu.Unlock()
		if ok {
			return message, nil
		}
		if over != nil {
			return Message{}, over
		}
		select {
		case <-s.wake:
		case <-ctx.Done():
			return Message{}, ctx.Err()
		}
	}
}

// finish ends every stream: it gives nothing more, or after errEnded what waits.
func (c *Client) finish(over error) {
	c.over = over
	c.stream.ring()
	for s := range c.everySubscription() {
		s.stream.ring()
	}
	for _, s := range c.listeners {
		s.stream.ring()
	}
	for _, exchange := range c.exchanges {
		exchange.replies.ring()
	}
}

// messagesOf returns a channel of the messages of a stream. It is closed when no more come.
func (c *Client) messagesOf(s *stream) <-chan Message {
	s.forward.Do(func() {
		go func() {
			defer close(s.channel)
			for {
				message, err := c.next(context.Background(), s)
				if err != nil {
					return
				}
				select {
				case s.channel <- message:
				case <-s.done:
					return
				case <-c.closed:
					return
				}
			}
		}()
	})
	return s.channel
}

// --- the client's stream ---

// Receive returns the next message of the client's stream, or ctx.Err() if ctx ends first. If ctx has already ended,
// Receive still returns a message that is there. While the daemon is away it waits.
//
// The messages in the client's stream are those that match a subscription without a callback, unless the program
// receives from the Subscription itself; those to "!" and to this program, unless Listen has a callback; and what a tap
// shows besides, whatever its verdict.
func (c *Client) Receive(ctx context.Context) (Message, error) {
	c.claim()
	return c.next(ctx, &c.stream)
}

// Messages returns a channel of the messages in the client's stream, which is closed with the client. Receive no longer
// returns a message that is in the channel.
func (c *Client) Messages() <-chan Message {
	c.claim()
	return c.messagesOf(&c.stream)
}

func (c *Client) claim() {
	if !c.claimed.Load() {
		c.claimed.Store(true)
	}
}

// --- who gets a message ---

// So many channels are remembered with the streams that their messages go to.
const routesLimit = 1024

// deliver puts a message into each stream that wants it.
func (c *Client) deliver(message *Message) {
	if c.routed == 0 || message.isRejected() { // nobody subscribes to what was not delivered
		c.put(&c.stream, message)
		return
	}
	for _, s := range c.route(message.Channel) {
		c.put(s, message)
	}
	c.dropUnclaimed()
}

// route returns the streams that get the messages of a channel.
func (c *Client) route(channel string) []*stream {
	if route, known := c.routes[channel]; known {
		return route
	}
	var route []*stream
	shared := false // the client's stream gets it, too
	add := func(s *Subscription) {
		if s.apart {
			route = append(route, &s.stream)
		} else {
			shared = true
		}
	}
	if strings.HasPrefix(channel, "!") {
		for _, listener := range c.listeners {
			add(listener)
		}
		shared = shared || c.listening
	} else {
		for s := range c.everySubscription() {
			if c.matches(s.pattern, channel) {
				add(s)
			}
		}
	}
	if shared || len(route) == 0 {
		route = append(route, &c.stream)
	}
	if c.routes == nil || len(c.routes) >= routesLimit {
		c.routes = map[string][]*stream{}
	}
	c.routes[channel] = route
	return route
}

// dropUnclaimed drops what waits in the client's stream if this program does all in callbacks and streams of
// subscriptions: messages that it never receives must not stop the others.
func (c *Client) dropUnclaimed() {
	if c.claimed.Load() || c.listening || c.options.Tap != TapOff || c.stream.size <= unclaimedLimit {
		return
	}
	for s := range c.everySubscription() {
		if !s.apart {
			return
		}
	}
	count := c.discard(&c.stream)
	text := "messages dropped that nobody receives: receive them, or give Listen a callback"
	c.notify(Notice{Kind: NoticeUnclaimed, Text: text, Count: count})
}
