package bccn

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"time"
)

// Request and reply (clients/PROTOCOL.md, "Request and reply").
//
// Rules:
//  1. A request is a message whose first line is a token; a reply is directed to the asker and begins with the same
//     line. A token cannot be guessed and belongs to one client: a message that begins like ours is a reply, perhaps a
//     late one.
//  2. A request is published once. The daemon says at once how many listen on this host. If nobody does, and no reply
//     came within askAfter, the client asks the daemons of the other hosts: those with listeners reply, with the token
//     and a "?". Nobody listens if several questions bring no reply; a single one could have been lost.

const (
	// Bytes of the first line of a request.
	tokenLimit = 128

	// The first question waits for askAfter, so that a reply at once costs the segment nothing.
	questions = 3
	askAfter  = 20 * time.Millisecond
	askEvery  = 100 * time.Millisecond

	// More replies that wait for one request are a flood, and are dropped.
	repliesLimit = 65536
)

// An exchange is a request that waits for replies. Client.mu guards it.
type exchange struct {
	channel   string
	replies   stream
	settled   bool // somebody listens, or nobody can know
	confirmed bool // the daemon has taken the request, or rejected it
	rejection *Error
}

func newToken() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:]) + "."
}

// isReply keeps a reply to a request of this client, drops a late one, and reports whether the message was a reply. A
// request to all comes back to the asker, and is not a reply.
func (c *Client) isReply(message Message) bool {
	line, payload, _ := bytes.Cut(message.Payload, []byte{'\n'})
	token := string(line)
	if !strings.HasPrefix(token, c.token) {
		return false
	}
	exchange := c.exchanges[strings.TrimSuffix(token, "?")]
	switch {
	case exchange == nil:
	case message.Channel == exchange.channel:
		return false
	default:
		exchange.settled = true
		if message.Payload = payload; !strings.HasSuffix(token, "?") && exchange.replies.length() < repliesLimit {
			c.put(&exchange.replies, &message)
		}
	}
	return true
}

// blame gives an error to the request that the daemon rejected, and reports whether there is one.
func (c *Client) blame(err *Error) bool {
	for _, exchange := range c.exchanges {
		if !exchange.confirmed && strings.HasPrefix(err.Text, "MSG "+exchange.channel+":") {
			exchange.rejection = err
			return true
		}
	}
	return false
}

// Request publishes a request and returns the first reply. Its errors are ErrTimeout, when ctx ends or, if ctx has no
// deadline, after Options.Timeout; and within a third of a second ErrNobody, if no program of this host or of another
// with a daemon would get the request.
func (c *Client) Request(ctx context.Context, channel string, payload []byte) (Message, error) {
	for reply, err := range c.RequestMany(ctx, channel, payload, 1) {
		return reply, err
	}
	text := "no reply on " + channel + " in time"
	return Message{}, &Error{Code: ErrTimeout, Text: text, cause: context.DeadlineExceeded}
}

// RequestMany publishes a request, each time that somebody iterates over it, and yields the replies as they come: the
// first count of them, or for 0 all. When the time is over, as in Request, it ends without an error, also if there was no
// reply. An error comes last, with an empty message; ErrNobody is one.
func (c *Client) RequestMany(
	ctx context.Context, channel string, payload []byte, count int,
) iter.Seq2[Message, error] {
	return func(yield func(Message, error) bool) {
		if ctx == nil {
			yield(Message{}, errNoContext)
			return
		}
		ctx, cancel := c.patience(ctx)
		defer cancel()
		exchange, token := c.begin(channel)
		defer c.conclude(exchange, token)
		if err := c.publishRequest(ctx, exchange, token, payload); err != nil {
			isOver := errors.Is(ctx.Err(), context.DeadlineExceeded)
			if !isOver || !errors.Is(err, ErrTimeout) { // a daemon that answers too late leaves no time for replies
				yield(Message{}, err)
			}
			return
		}
		due, left := time.Now().Add(askAfter), questions
		for replies := 0; count <= 0 || replies < count; {
			reply, err := c.nextReply(ctx, exchange, due)
			switch {
			case err == nil:
				if replies++; !yield(reply, nil) {
					return
				}
				continue
			case errors.Is(ctx.Err(), context.DeadlineExceeded):
				return
			case !errors.Is(err, context.DeadlineExceeded):
			case c.isSettled(exchange):
				continue
			case left == 0:
				err = &Error{Code: ErrNobody, Text: "nobody listens to " + channel}
			default:
				due, left = time.Now().Add(askEvery), left-1
				if err = c.askOthers(ctx, exchange, token); err == nil {
					continue
				}
				if errors.Is(ctx.Err(), context.DeadlineExceeded) {
					return
				}
			}
			yield(Message{}, err)
			return
		}
	}
}

// nextReply waits for a reply until ctx ends, or, while it is not known that somebody listens, until due.
func (c *Client) nextReply(ctx context.Context, exchange *exchange, due time.Time) (Message, error) {
	defer c.press()()
	if !c.isSettled(exchange) {
		stage, cancel := context.WithDeadline(ctx, due)
		defer cancel()
		ctx = stage
	}
	return c.next(ctx, &exchange.replies)
}

func (c *Client) begin(channel string) (*exchange, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	token := c.token + strconv.FormatUint(c.requests, 10)
	exchange := &exchange{channel: channel, replies: newStream()}
	c.exchanges[token] = exchange
	return exchange, token
}

func (c *Client) conclude(exchange *exchange, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exchanges, token)
	c.discard(&exchange.replies)
}

func (c *Client) isSettled(exchange *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return exchange.settled
}

// publishRequest hands the request to the daemon once, and finds out whether anybody on this host listens. It first
// makes sure that messages published before are confirmed, so that any rejection is about the request.
func (c *Client) publishRequest(ctx context.Context, exchange *exchange, token string, payload []byte) error {
	c.mu.Lock()
	hearing, unsettled := c.hearing || c.listening || len(c.listeners) > 0, c.published > c.confirmed
	c.mu.Unlock()
	var err error
	if !hearing {
		_, err = c.ask(ctx, "listen", "", func(string) { c.hearing = true }, nil)
	} else if unsettled {
		_, err = c.ask(ctx, "ping", "", nil, nil)
	}
	if err == nil {
		err = c.publish(ctx, exchange.channel, token+"\n", payload)
	}
	if err != nil {
		return err
	}
	listeners, err := c.ask(ctx, "listeners", exchange.channel, nil, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	exchange.confirmed = true
	if exchange.rejection != nil {
		return exchange.rejection
	}
	if errors.Is(err, ErrUnknownKey) { // an older daemon does not say whether somebody listens
		err = nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) { // there was no time for replies either
		return nil
	}
	exchange.settled = exchange.settled || listeners != "0"
	return err
}

// askOthers makes the daemon ask those of the other hosts. It answers <n>, <n> asked or <n> busy.
func (c *Client) askOthers(ctx context.Context, exchange *exchange, token string) error {
	answer, err := c.ask(ctx, "listeners", exchange.channel+" "+token+"?", nil, nil)
	if err != nil {
		return err
	}
	listeners, outcome, _ := strings.Cut(answer, " ")
	c.mu.Lock()
	defer c.mu.Unlock()
	exchange.settled = exchange.settled || listeners != "0" || outcome == "busy"
	if !exchange.settled && outcome != "asked" {
		text := "nobody on this host listens to " + exchange.channel + ", a local channel"
		return &Error{Code: ErrNobody, Text: text}
	}
	return nil
}

// --- replying ---

// A Request is a request to this program. Its Payload is without the token.
type Request struct {
	Message
	token  string
	client *Client
}

// AsRequest returns message as a request. It returns false if the message is not a request, or if its sender is
// unknown: the sender is known only in FormatFull.
func (c *Client) AsRequest(message Message) (*Request, bool) {
	token, payload, found := bytes.Cut(message.Payload, []byte{'\n'})
	known := message.Src != "" && message.Src != "?" && !strings.Contains(message.Src, "*")
	if !found || !known || len(token) == 0 || len(token) > tokenLimit {
		return nil, false
	}
	message.Payload = payload
	return &Request{message, string(token), c}, true
}

// Reply replies to the request, from any goroutine, any number of times. Its errors are those of Publish.
func (r *Request) Reply(ctx context.Context, payload []byte) error {
	return r.client.publish(ctx, "!"+r.Src, r.token+"\n", payload)
}

// Serve subscribes to pattern, and replies to each request with what handler returns. If that is nil, which is not an
// empty reply, the program calls Request.Reply itself, or never. Messages that are no requests are ignored.
//
// The handler runs in a goroutine of its own, for one request at a time, as a callback does. One that takes long starts
// a goroutine, returns nil, and replies from there; that is also how several requests are served at once. A reply that
// cannot be sent is a NoticeRejected. Serve needs FormatFull, which shows who asks, and fails with ErrInvalid without.
// The pattern "!" serves what is asked of all and of this program.
func (c *Client) Serve(ctx context.Context, pattern string, handler func(*Request) []byte) (*Subscription, error) {
	if c.options.Format != FormatFull {
		return nil, &Error{Code: ErrInvalid, Text: "Serve needs FormatFull, which shows who asks"}
	}
	if handler == nil {
		return nil, &Error{Code: ErrInvalid, Text: "Serve needs a handler"}
	}
	reply := Callback(func(message Message) {
		request, ok := c.AsRequest(message)
		if !ok || message.Verdict != "ok" { // a last value, or what only a tap gets
			return
		}
		payload := handler(request)
		if payload == nil {
			return
		}
		if err := request.Reply(context.Background(), payload); err != nil && !c.isClosed() {
			text := fmt.Sprintf("no reply to %s: %v", request.Src, err)
			c.mu.Lock()
			c.notify(Notice{Kind: NoticeRejected, Text: text, Count: 1, Err: err})
			c.mu.Unlock()
		}
	})
	if pattern == listener {
		return c.listen(ctx, reply)
	}
	return c.Subscribe(ctx, pattern, reply)
}
