package bccn

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Request and reply (clients/PROTOCOL.md, "Request and reply").
//
// Rules:
//  1. A request is a message whose first line is a token; an answer is directed to the asker and begins with the same
//     line. A token cannot be guessed and belongs to one client: a message that begins like ours is an answer, perhaps a
//     late one.
//  2. A request is published once. The daemon says at once how many listen on this host. If nobody does, and no answer
//     came within askAfter, the client asks the daemons of the other hosts: those with listeners answer, with the token
//     and a "?". Nobody listens if several questions bring no answer; a single one could have been lost.

const (
	// Bytes of the first line of a request.
	tokenLimit = 128

	// The first question waits for askAfter, so that an answer at once costs the segment nothing.
	questions = 3
	askAfter  = 20 * time.Millisecond
	askEvery  = 100 * time.Millisecond

	// More answers to one request are a flood, and are dropped.
	answersLimit = 65536
)

// An exchange is a request that waits for answers. Client.mu guards it.
type exchange struct {
	channel   string
	answers   queue
	settled   bool // somebody listens, or nobody can know
	confirmed bool // the daemon has taken the request, or rejected it
	rejection *Error
}

func newToken() string {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return hex.EncodeToString(random[:]) + "."
}

// isAnswer keeps an answer to a request of this client, drops a late one, and reports whether the message was an
// answer. A request to all comes back to the asker, and is not an answer.
func (c *Client) isAnswer(message Message) bool {
	line, answer, _ := bytes.Cut(message.Payload, []byte{'\n'})
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
		if message.Payload = answer; !strings.HasSuffix(token, "?") && len(exchange.answers.messages) < answersLimit {
			c.put(&exchange.answers, message)
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

// Request asks on channel and returns the first answer. Its errors are Timeout, and within a third of a second Nobody,
// if no program of this host or of another with a daemon would get the request.
func (c *Client) Request(ctx context.Context, channel string, question []byte) (Message, error) {
	answers, err := c.RequestMany(ctx, channel, question, 1)
	if err != nil {
		return Message{}, err
	}
	return answers[0], nil
}

// RequestMany asks on channel and returns the first so many answers, or for 0 all that come before ctx ends
// (Options.Timeout, if ctx has no deadline). Fewer answers are an error only if there are none.
func (c *Client) RequestMany(ctx context.Context, channel string, question []byte, most int) ([]Message, error) {
	ctx, cancel := c.patience(ctx)
	defer cancel()
	defer c.press()()
	if most <= 0 {
		most = answersLimit
	}
	exchange, token := c.begin(channel)
	defer c.finish(exchange, token)
	if err := c.publishRequest(ctx, exchange, token, question); err != nil {
		return nil, err
	}
	var answers []Message
	due, left := time.Now().Add(askAfter), questions
	for len(answers) < most {
		stage, done := ctx, func() {}
		if !c.isSettled(exchange) {
			stage, done = context.WithDeadline(ctx, due)
		}
		message, err := c.next(stage, &exchange.answers)
		done()
		switch {
		case err == nil:
			answers = append(answers, message)
		case !isCode(err, Closed, Unavailable) && ctx.Err() != nil && len(answers) > 0:
			return answers, nil
		case ctx.Err() != nil:
			return nil, overdue(ctx, Timeout, "no answer on "+channel+" in time")
		case !errors.Is(err, context.DeadlineExceeded):
			return nil, err
		case c.isSettled(exchange):
		case left == 0:
			return nil, &Error{Code: Nobody, Text: "nobody listens to " + channel}
		default:
			due, left = time.Now().Add(askEvery), left-1
			if err := c.askOthers(ctx, exchange, token); err != nil {
				return nil, err
			}
		}
	}
	return answers, nil
}

func (c *Client) begin(channel string) (*exchange, string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests++
	token := c.token + strconv.FormatUint(c.requests, 10)
	exchange := &exchange{channel: channel, answers: newQueue()}
	c.exchanges[token] = exchange
	return exchange, token
}

func (c *Client) finish(exchange *exchange, token string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.exchanges, token)
	for more := true; more; _, more = c.take(&exchange.answers) { // nobody else takes them
	}
}

func (c *Client) isSettled(exchange *exchange) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return exchange.settled
}

// publishRequest hands the request to the daemon once, and finds out whether anybody on this host listens. It first
// makes sure that messages published before are confirmed, so that any rejection is about the request.
func (c *Client) publishRequest(ctx context.Context, exchange *exchange, token string, question []byte) error {
	c.mu.Lock()
	hearing, unsettled := c.listening || c.hearing, c.published > c.confirmed
	c.mu.Unlock()
	var err error
	if !hearing {
		_, err = c.ask(ctx, "listen", "", func(string) { c.hearing = true }, nil)
	} else if unsettled {
		_, err = c.ask(ctx, "ping", "", nil, nil)
	}
	if err == nil {
		err = c.publish(exchange.channel, token+"\n", question)
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
	if isCode(err, UnknownKey) { // an older daemon does not say whether somebody listens
		err = nil
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
		return &Error{Code: Nobody, Text: text}
	}
	return nil
}

// A Request is a request to this program. Its Payload is the question.
type Request struct {
	Message
	token  string
	client *Client
}

// AsRequest returns message as a request. It returns false if the message is not a request, or if its sender is
// unknown: the sender is known only with Options.Full.
func (c *Client) AsRequest(message Message) (*Request, bool) {
	token, question, found := bytes.Cut(message.Payload, []byte{'\n'})
	known := message.Src != "" && message.Src != "?" && !strings.Contains(message.Src, "*")
	if !found || !known || len(token) == 0 || len(token) > tokenLimit {
		return nil, false
	}
	message.Payload = question
	return &Request{message, string(token), c}, true
}

// Reply answers the request, from any goroutine, any number of times. Its errors are those of Publish.
func (r *Request) Reply(answer []byte) error {
	return r.client.publish("!"+r.Src, r.token+"\n", answer)
}

// Serve calls handler with each request, one at a time, until ctx ends; then it returns ctx.Err(). The handler calls
// Reply, or another goroutine does so later. Serve needs Options.Full. It drops messages that are not requests: a
// program that wants other messages, too, receives them itself and calls AsRequest.
func (c *Client) Serve(ctx context.Context, handler func(*Request)) error {
	if !c.options.Full {
		return &Error{Code: Invalid, Text: "Serve needs Options.Full, which shows who asks"}
	}
	for {
		message, err := c.Receive(ctx)
		if err != nil {
			return err
		}
		if request, ok := c.AsRequest(message); ok {
			handler(request)
		}
	}
}
