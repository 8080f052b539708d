package bccn

import (
	"context"
	"slices"
	"strings"
)

// A watch has its callback told of a state, and not of each notice: while the callback runs, the last state replaces
// those before it. Client.mu guards it.
type watch struct {
	callback func(pattern string, wanted bool)
	wanted   bool // as the daemon has said last
	known    bool // told is what the callback was called with
	told     bool
	telling  bool // a goroutine calls the callback
}

// Watch has callback called with true or false as soon as it is known, and at each change: whether anybody else on this
// host or another one listens to channels that match pattern. A program can so make data only while somebody wants it.
// The callback has a goroutine of its own, is called once at a time, and may call any function of this package.
//
// A watch lasts until Unwatch, over reconnections, too: then the callback is called only if the state differs. Another
// call for the pattern replaces the callback, which is told anew. The errors are those of Subscribe; it needs the right
// to publish on all channels of the pattern.
func (c *Client) Watch(ctx context.Context, pattern string, callback func(pattern string, wanted bool)) error {
	if callback == nil {
		return &Error{Code: ErrInvalid, Text: "Watch needs a callback"}
	}
	granted := func(string) {
		c.watches[pattern] = &watch{callback: callback}
		c.withdrawn = slices.DeleteFunc(c.withdrawn, func(each *withdrawal) bool { // it waited for this
			return each.watch && !each.asked && each.pattern == pattern
		})
	}
	prepare := func(asked *query) { asked.undo = &withdrawal{pattern: pattern, watch: true} }
	_, err := c.ask(ctx, "watch", pattern, granted, prepare)
	return err
}

// isWatching reports whether a watch is there, or somebody waits for one; under mu.
func (c *Client) isWatching(pattern string) bool {
	return c.watches[pattern] != nil || slices.ContainsFunc(c.asked, func(asked *query) bool {
		return asked.granted != nil && asked.undo != nil && *asked.undo == withdrawal{pattern: pattern, watch: true}
	})
}

// Unwatch ends the watch of pattern at once, even if it fails: no call of the callback begins any more. It returns when
// the daemon has ended it, too. To end one that is not there does nothing.
func (c *Client) Unwatch(ctx context.Context, pattern string) error {
	c.mu.Lock()
	held := c.watches[pattern] != nil
	delete(c.watches, pattern)
	c.mu.Unlock()
	var last *query
	granted := func(string) { delete(c.watches, pattern) } // that another call had asked for
	_, err := c.ask(ctx, "unwatch", pattern, granted, func(asked *query) { last = asked })
	if err != nil && held && (last == nil || !last.said) {
		c.mu.Lock()
		c.withdrawn = append(c.withdrawn, &withdrawal{pattern: pattern, watch: true}) // a greeting may have asked for it
		l := c.link
		c.mu.Unlock()
		c.takeBackSoon(l)
	}
	return err
}

// news takes what the daemon says of a watch, "<where> <pattern>"; under mu.
func (c *Client) news(value string) {
	where, pattern, _ := strings.Cut(value, " ")
	w := c.watches[pattern]
	if w == nil {
		return
	}
	w.wanted = where != "no" // a newer daemon may have more words
	if !w.telling {
		w.telling = true
		go c.tellOf(pattern, w)
	}
}

// tellOf calls the callback of a watch until that has been told the last state.
func (c *Client) tellOf(pattern string, w *watch) {
	for {
		c.mu.Lock()
		if c.isClosed() || c.watches[pattern] != w || w.known && w.told == w.wanted {
			w.telling = false
			c.mu.Unlock()
			return
		}
		wanted := w.wanted
		w.known, w.told = true, wanted
		c.mu.Unlock()
		w.callback(pattern, wanted)
	}
}
