// libbccn for C++17, a header over bccn.h.
//
//     bccn::Bus bus;
//     auto demo = bus.subscribe("demo/>");
//     bus.publish("demo/greeting", "hello");
//     while (auto message = bus.receive(1s))
//         std::cout << message->channel << ' ' << message->payload << '\n';
//
// - Errors are exceptions of the type bccn::Error, whose code() is a bccn::Code.
// - A Message owns what it has: nothing in it points into the bus. A MessageView does not, for those who count cycles.
// - An exception that leaves a callback ends the receive or dispatch that called it, which throws it. What was not yet
//   delivered comes with the next call. That of on_notice leaves the call of the bus during which the notice came.
// - A callback is freed when its Subscription is closed, or with the bus. It may close its subscription, and its bus.
// - One thread at a time uses a Bus. Moving it moves its subscriptions along.
//
// SPDX-License-Identifier: MIT
#ifndef BCCN_HPP
#define BCCN_HPP

#include "bccn.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace bccn {

using Milliseconds = std::chrono::milliseconds;
inline constexpr Milliseconds forever{-1};

// There may be more of them than a program knows. bccn.h says what each means.
enum class Code : int {
    ok = BCCN_OK,
    invalid = BCCN_E_INVALID,
    memory = BCCN_E_MEMORY,
    unavailable = BCCN_E_UNAVAILABLE,
    unconfirmed = BCCN_E_UNCONFIRMED,
    timeout = BCCN_E_TIMEOUT,
    backlog = BCCN_E_BACKLOG,
    protocol = BCCN_E_PROTOCOL,
    interrupted = BCCN_E_INTERRUPTED,
    nobody = BCCN_E_NOBODY,
    closed = BCCN_E_CLOSED,
    stopped = BCCN_E_STOPPED,
    bad_packet = BCCN_E_BAD_PACKET,
    bad_channel = BCCN_E_BAD_CHANNEL,
    bad_pattern = BCCN_E_BAD_PATTERN,
    bad_value = BCCN_E_BAD_VALUE,
    bad_name = BCCN_E_BAD_NAME,
    name_taken = BCCN_E_NAME_TAKEN,
    not_subscribed = BCCN_E_NOT_SUBSCRIBED,
    too_large = BCCN_E_TOO_LARGE,
    unknown_key = BCCN_E_UNKNOWN_KEY,
    refused = BCCN_E_REFUSED,
    limit = BCCN_E_LIMIT,
    not_agreed = BCCN_E_NOT_AGREED,
    bad_datagram = BCCN_E_BAD_DATAGRAM,
    rejected = BCCN_E_REJECTED
};

enum class NoticeKind : int {
    lost = BCCN_NOTICE_LOST,
    rejected = BCCN_NOTICE_REJECTED,
    revoked = BCCN_NOTICE_REVOKED,
    closing = BCCN_NOTICE_CLOSING,
    disconnected = BCCN_NOTICE_DISCONNECTED,
    reconnected = BCCN_NOTICE_RECONNECTED,
    unclaimed = BCCN_NOTICE_UNCLAIMED
};

enum class Format : int { plain = BCCN_FORMAT_PLAIN, full = BCCN_FORMAT_FULL };
enum class Tap : int { off = BCCN_TAP_OFF, on = BCCN_TAP_ON, interface = BCCN_TAP_INTERFACE };
enum class Policy : int {
    default_ = BCCN_POLICY_DEFAULT,
    drop_oldest = BCCN_POLICY_DROP_OLDEST,
    drop_newest = BCCN_POLICY_DROP_NEWEST,
    block = BCCN_POLICY_BLOCK,
    disconnect = BCCN_POLICY_DISCONNECT
};

// The word of the protocol: "too-large", ...
inline std::string word(Code code) { return bccn_code_word(static_cast<int>(code)); }
// Of the library that runs.
inline std::string version() { return bccn_version(); }
// Whether a subscription to `pattern` brings messages of `channel`.
inline bool matches(const std::string &pattern, const std::string &channel, char separator = '/')
{
    return bccn_matches(pattern.c_str(), channel.c_str(), separator) != 0;
}

// what() is a line for people.
class Error : public std::runtime_error {
public:
    Error(Code code, const std::string &text) : std::runtime_error(text), code_(code) {}
    Code code() const noexcept { return code_; }

private:
    Code code_;
};

struct Notice {
    NoticeKind kind;
    Code code; // of NoticeKind::rejected
    std::uint64_t count;
    std::string text; // a line for people
};

// Print "bccn: <text>" on stderr.
inline void print_notice(const Notice &notice)
{
    const bccn_notice raw{static_cast<bccn_notice_kind>(notice.kind), BCCN_OK, notice.count, notice.text.c_str()};
    bccn_print_notice(&raw, nullptr);
}

// Zero leaves a limit as the daemon's settings have it.
struct Queue {
    unsigned packets = 0;
    std::size_t bytes = 0;
    Policy policy = Policy::default_;
};

struct Options {
    std::string name;              // own src; empty: the daemon's choice
    Format format = Format::plain; // full: messages have src, seq, peer, time, verdict and datagram
    bool pack = false;             // several messages share a packet, both ways
    bool echo = true;              // own messages that match are received
    char separator = '/';          // or '.'
    Queue queue;                   // what may wait in the daemon
    Tap tap = Tap::off;            // every datagram of the segment is received, too; no callback gets rejected ones
    bool reconnect = true;
    Milliseconds timeout{5000};    // that a call waits for the daemon
    Milliseconds wait{0};          // that the constructor keeps trying
    std::function<void(const Notice &)> on_notice = print_notice; // nullptr drops all notices. It must not use the bus
};

// A message in the memory of the bus: valid until its callback returns, or until the next receive or dispatch. Make a
// Message of what is kept.
struct MessageView {
    std::string_view channel, payload;
    std::uint64_t lost = 0;
    std::string_view src;
    std::uint64_t seq = 0;
    std::string_view peer;
    std::chrono::system_clock::time_point time;
    std::string_view verdict, datagram, interface;

    explicit MessageView(const bccn_message &from)
        : channel(from.channel), payload(static_cast<const char *>(from.payload), from.size), lost(from.lost),
          seq(from.seq)
    {
        using std::chrono::system_clock;
        if (!from.peer) // the format plain
            return;
        const std::chrono::nanoseconds since{static_cast<std::int64_t>(from.time_ns)};
        src = text(from.src);
        peer = from.peer;
        time = system_clock::time_point(std::chrono::duration_cast<system_clock::duration>(since));
        verdict = text(from.verdict);
        datagram = std::string_view(static_cast<const char *>(from.datagram), from.datagram_size);
        interface = text(from.interface);
    }

private:
    static std::string_view text(const char *from) { return from ? from : std::string_view(); }
};

// What belongs to the format full is empty and zero without it.
struct Message {
    std::string channel, payload;
    std::uint64_t lost = 0; // messages that the daemon dropped directly before this one
    std::string src;
    std::uint64_t seq = 0;
    std::string peer;
    std::chrono::system_clock::time_point time; // when the daemon received it
    std::string verdict, datagram;
    std::string interface; // that a datagram came by, with Tap::interface

    Message() = default;
    explicit Message(const MessageView &from)
        : channel(from.channel), payload(from.payload), lost(from.lost), src(from.src), seq(from.seq), peer(from.peer),
          time(from.time), verdict(from.verdict), datagram(from.datagram), interface(from.interface)
    {
    }

    // Also in the memory that its strings have.
    Message &operator=(const MessageView &from)
    {
        keep(channel, from.channel);
        put(payload, from.payload);
        lost = from.lost;
        seq = from.seq;
        time = from.time;
        if (from.peer.empty() && peer.empty()) // the format plain
            return *this;
        keep(src, from.src);
        keep(peer, from.peer);
        keep(verdict, from.verdict);
        put(datagram, from.datagram);
        put(interface, from.interface);
        return *this;
    }

    // The question, if the message is a request.
    std::optional<std::string> question() const
    {
        bccn_message raw{};
        std::size_t size = 0;
        raw.payload = payload.data();
        raw.size = payload.size();
        const void *at = bccn_question(&raw, &size);
        return at ? std::optional<std::string>(std::in_place, static_cast<const char *>(at), size) : std::nullopt;
    }

private:
    // What a program receives often comes from few.
    static void keep(std::string &text, std::string_view from)
    {
        if (text != from)
            put(text, from);
    }
    // The general assignment looks at what need not be looked at here, and costs three times as much.
    static void put(std::string &text, std::string_view from)
    {
        if (from.size() > text.size()) {
            text.assign(from);
        } else {
            text.resize(from.size());
            std::char_traits<char>::copy(text.data(), from.data(), from.size());
        }
    }
};

using Callback = std::function<void(const Message &)>;
using ViewCallback = std::function<void(const MessageView &)>;
// Gets a pattern, and whether anybody listens.
using WatchCallback = std::function<void(const std::string &, bool)>;
// Returns the reply; or nothing, and the program replies later.
using Handler = std::function<std::optional<std::string>(const Message &)>;

namespace detail {

// A text for C. With a NUL in it, C would take another text.
inline const char *text(const std::string &of)
{
    if (of.find('\0') != std::string::npos)
        throw Error(Code::invalid, "a text with a NUL in it");
    return of.c_str();
}

// An int holds 24 days in milliseconds. A longer time is cut to that, and not to its lower bits.
template <class Duration> int clamped(Duration time)
{
    const std::intmax_t most = std::numeric_limits<int>::max();
    return static_cast<int>(std::clamp<std::intmax_t>(time.count(), -1, most));
}

class State;

// What a subscription or a watch calls. C has its address, and whoever calls it keeps it until it returns.
struct Entry : std::enable_shared_from_this<Entry> {
    State *state = nullptr;
    std::string pattern;
    Callback callback;
    ViewCallback view_callback;
    WatchCallback watch_callback;
    Handler handler;
};

// What stays where it is when a Bus moves.
class State {
public:
    State() = default;
    State(const State &) = delete;
    State &operator=(const State &) = delete;
    ~State() { bccn_close(bus); }

    int check(int code)
    {
        if (thrown)
            std::rethrow_exception(std::exchange(thrown, nullptr));
        if (code < 0)
            throw Error(static_cast<Code>(code), bus ? bccn_error_text(bus) : bccn_strerror(code));
        return code;
    }

    // Keep what leaves a function that C calls. The result ends what C does.
    template <class Function> int guarded(Function &&function) noexcept
    {
        try {
            std::forward<Function>(function)();
            return 0;
        } catch (...) {
            if (!thrown)
                thrown = std::current_exception();
            return BCCN_E_STOPPED;
        }
    }

    void end(const std::shared_ptr<Entry> &entry)
    {
        const auto at = std::find(entries.begin(), entries.end(), entry);
        if (!bus || at == entries.end())
            return;
        entries.erase(at);
        check(bccn_unsubscribe_user(bus, entry->pattern.c_str(), entry.get()));
    }

    // Free what watches the pattern, but for `kept`.
    void forget_watch(const std::string &pattern, const Entry *kept = nullptr)
    {
        const auto is_gone = [&](const std::shared_ptr<Entry> &each) {
            return each->watch_callback && each->pattern == pattern && each.get() != kept;
        };
        entries.erase(std::remove_if(entries.begin(), entries.end(), is_gone), entries.end());
    }

    void close()
    {
        bccn_close(std::exchange(bus, nullptr));
        entries.clear();
        directed.reset();
    }

    static int call(bccn_bus *, const bccn_message *message, void *user) noexcept
    {
        const auto entry = static_cast<Entry *>(user)->shared_from_this();
        State &state = *entry->state;
        return state.guarded([&] {
            state.message = MessageView(*message);
            entry->callback(state.message);
        });
    }

    static int call_view(bccn_bus *, const bccn_message *message, void *user) noexcept
    {
        const auto entry = static_cast<Entry *>(user)->shared_from_this();
        return entry->state->guarded([&] { entry->view_callback(MessageView(*message)); });
    }

    static int tell(bccn_bus *, const char *, int wanted, void *user) noexcept
    {
        const auto entry = static_cast<Entry *>(user)->shared_from_this();
        return entry->state->guarded([&] { entry->watch_callback(entry->pattern, wanted != 0); });
    }

    static int handle(bccn_bus *bus, const bccn_message *request, const void *, std::size_t, void *user) noexcept
    {
        const auto entry = static_cast<Entry *>(user)->shared_from_this();
        State &state = *entry->state;
        return state.guarded([&] {
            state.message = MessageView(*request);
            const auto reply = entry->handler(state.message);
            if (reply && state.bus)
                state.check(bccn_reply(bus, request, reply->data(), reply->size()));
        });
    }

    static void notify(const bccn_notice *notice, void *user) noexcept
    {
        State &state = *static_cast<State *>(user);
        state.guarded([&] {
            state.on_notice(Notice{static_cast<NoticeKind>(notice->kind), static_cast<Code>(notice->code),
                                   notice->count, notice->text});
        });
    }

    bccn_bus *bus = nullptr;
    std::function<void(const Notice &)> on_notice;
    Milliseconds timeout{};
    bool calls_back = false; // there ever was a callback
    std::vector<std::shared_ptr<Entry>> entries;
    std::shared_ptr<Entry> directed; // of listen
    std::exception_ptr thrown;
    Message message; // that a callback has; the memory of its strings serves again
};

} // namespace detail

// A subscription of a bus. It is a reference: it stays in force without one, and copies close the same.
class Subscription {
public:
    Subscription() = default;
    // End it; again, or after the bus, this does nothing. It has ended even if this throws.
    void close()
    {
        const auto state = state_.lock();
        const auto entry = entry_.lock();
        if (state && entry)
            state->end(entry);
    }
    const std::string &pattern() const noexcept { return pattern_; }

private:
    friend class Bus;
    Subscription(const std::shared_ptr<detail::State> &state, const std::shared_ptr<detail::Entry> &entry)
        : state_(state), entry_(entry), pattern_(entry->pattern)
    {
    }

    std::weak_ptr<detail::State> state_;
    std::weak_ptr<detail::Entry> entry_;
    std::string pattern_;
};

class Bus {
public:
    Bus() : Bus(std::string()) {}
    explicit Bus(const Options &options) : Bus(std::string(), options) {}
    // `path`: that of a socket, "@name" (abstract), or empty for the usual places.
    explicit Bus(const std::string &path, const Options &options = Options())
        : state_(std::make_shared<detail::State>())
    {
        bccn_options raw = BCCN_OPTIONS_INIT;
        if (!options.name.empty())
            raw.name = detail::text(options.name);
        raw.queue_bytes = options.queue.bytes;
        raw.queue_packets = options.queue.packets;
        raw.queue_policy = static_cast<bccn_policy>(options.queue.policy);
        raw.format = static_cast<bccn_format>(options.format);
        raw.tap = static_cast<bccn_tap>(options.tap);
        raw.pack = options.pack;
        raw.echo = options.echo;
        raw.reconnect = options.reconnect;
        raw.separator = options.separator;
        raw.timeout = detail::clamped(options.timeout);
        raw.wait = detail::clamped(options.wait);
        const auto *function = options.on_notice.target<void (*)(const Notice &)>();
        if (!options.on_notice) {
            raw.on_notice = nullptr;
        } else if (!function || *function != print_notice) { // C counts the lines that it prints itself
            raw.on_notice = detail::State::notify;
            raw.notice_user = state_.get();
        }
        state_->on_notice = options.on_notice;
        state_->timeout = options.timeout;
        state_->check(bccn_open(&state_->bus, path.empty() ? nullptr : detail::text(path), &raw));
    }
    ~Bus() { close(); }
    Bus(const Bus &) = delete;
    Bus &operator=(const Bus &) = delete;
    Bus(Bus &&other) noexcept = default;
    Bus &operator=(Bus &&other) noexcept
    {
        std::swap(state_, other.state_);
        return *this;
    }

    // Close the connection at once. Later calls throw Code::closed.
    void close() noexcept
    {
        if (state_)
            state_->close();
    }

    // For the functions of bccn.h; nullptr when it is closed.
    bccn_bus *get() const noexcept { return state_ ? state_->bus : nullptr; }

    std::string name()
    {
        std::string name = bccn_name(open().bus);
        open().check(name.empty() ? BCCN_E_UNAVAILABLE : 0);
        return name;
    }
    void set_name(const std::string &name) { run(bccn_set_name, detail::text(name)); }

    // --- publishing ---

    void publish(const std::string &channel, std::string_view payload)
    {
        run(bccn_publish, detail::text(channel), payload.data(), payload.size());
    }
    void publish_all(std::string_view payload) { run(bccn_publish_all, payload.data(), payload.size()); }
    void publish_to(const std::string &target, std::string_view payload)
    {
        run(bccn_publish_to, detail::text(target), payload.data(), payload.size());
    }
    void send_datagram(std::string_view datagram) { run(bccn_send_datagram, datagram.data(), datagram.size()); }

    // bus.batch([&] { ... }) packs the messages that the function publishes. See bccn_batch_begin.
    template <class Function> void batch(Function &&function)
    {
        run(bccn_batch_begin);
        try {
            std::forward<Function>(function)();
        } catch (...) {
            bccn_batch_end(get());
            throw;
        }
        run(bccn_batch_end);
    }
    void barrier() { run(bccn_barrier); }

    // --- subscribing and receiving ---

    // Without a callback receive returns the messages.
    Subscription subscribe(const std::string &pattern, Callback callback = nullptr)
    {
        const auto entry = make_entry(pattern, callback != nullptr);
        auto *function = callback ? detail::State::call : nullptr;
        entry->callback = std::move(callback);
        return add(entry, bccn_subscribe(get(), detail::text(pattern), function, entry.get()));
    }
    Subscription subscribe_view(const std::string &pattern, ViewCallback callback)
    {
        const auto entry = make_entry(pattern, callback != nullptr);
        auto *function = callback ? detail::State::call_view : nullptr;
        entry->view_callback = std::move(callback);
        return add(entry, bccn_subscribe(get(), detail::text(pattern), function, entry.get()));
    }
    // Messages to all and to this program. Another call replaces the callback.
    void listen(Callback callback = nullptr)
    {
        const auto entry = make_entry("", callback != nullptr);
        auto *function = callback ? detail::State::call : nullptr;
        entry->callback = std::move(callback);
        const int code = bccn_listen(get(), function, entry.get());
        if (code == 0) // first: what on_notice has thrown leaves `check`
            state_->directed = entry;
        state_->check(code);
    }

    // Have receive and dispatch tell the callback whether anybody else listens to channels of the pattern, and each
    // change of that. Another call replaces the callback.
    void watch(const std::string &pattern, WatchCallback callback)
    {
        const auto entry = make_entry(pattern, callback != nullptr);
        auto *function = callback ? detail::State::tell : nullptr;
        entry->watch_callback = std::move(callback);
        const int code = bccn_watch(get(), detail::text(pattern), function, entry.get());
        if (code == 0) {
            state_->entries.push_back(entry);
            state_->forget_watch(pattern, entry.get());
        }
        state_->check(code);
    }
    // End that, even if this throws. A pattern that is not watched is no error.
    void unwatch(const std::string &pattern)
    {
        const std::string ended = pattern; // it may be that of the callback
        const int code = bccn_unwatch(open().bus, detail::text(ended));
        state_->forget_watch(ended);
        state_->check(code);
    }

    std::optional<Message> receive(Milliseconds timeout = forever)
    {
        const bccn_message *raw = next(timeout);
        return raw ? std::optional<Message>(std::in_place, MessageView(*raw)) : std::nullopt;
    }
    // The same, with the memory of a message that is there already: false: none in time.
    bool receive(Message &message, Milliseconds timeout = forever)
    {
        const bccn_message *raw = next(timeout);
        if (raw)
            message = MessageView(*raw);
        return raw != nullptr;
    }
    // The same, without a copy.
    std::optional<MessageView> receive_view(Milliseconds timeout = forever)
    {
        const bccn_message *raw = next(timeout);
        return raw ? std::optional<MessageView>(std::in_place, *raw) : std::nullopt;
    }
    // Call the callbacks of all that waits, and return how many messages that were.
    int dispatch() { return run_callbacks(bccn_dispatch); }
    // For poll loops: when it is readable, call dispatch, or receive(0ms) until it returns nothing.
    int fileno() { return run(bccn_fileno); }
    // How many messages the daemon has dropped in all.
    std::uint64_t lost() const { return bccn_lost(open().bus); }

    // --- request and reply ---

    // The first reply. Throws Code::timeout, or early Code::nobody. Without a timeout it is that of the bus.
    Message request(const std::string &channel, std::string_view question,
                    std::optional<Milliseconds> timeout = std::nullopt)
    {
        const bccn_message *reply = nullptr;
        run(bccn_request, detail::text(channel), question.data(), question.size(), &reply,
            detail::clamped(timeout.value_or(open().timeout)));
        return Message(MessageView(*reply));
    }
    // Call each(const Message &) with up to `count` replies (0: any number) as they come, and return how many came.
    // None is no error. If `each` returns a bool, false ends it.
    template <class Each>
    int request_many(const std::string &channel, std::string_view question, Each &&each,
                     std::optional<Milliseconds> timeout = std::nullopt, int count = 0)
    {
        const bccn_message *reply = nullptr;
        int came = 0;
        run(bccn_request_many, detail::text(channel), question.data(), question.size(),
            detail::clamped(timeout.value_or(open().timeout)), count);
        while (run(bccn_next_reply, &reply) > 0) {
            came++;
            if constexpr (std::is_same_v<std::invoke_result_t<Each &, const Message &>, bool>) {
                if (!each(Message(MessageView(*reply))))
                    break;
            } else {
                each(Message(MessageView(*reply)));
            }
        }
        return came;
    }
    // Reply to each request with what the handler returns. Needs the format full.
    Subscription serve(const std::string &pattern, Handler handler)
    {
        const auto entry = make_entry(pattern, handler != nullptr);
        auto *function = handler ? detail::State::handle : nullptr;
        entry->handler = std::move(handler);
        return add(entry, bccn_serve(get(), detail::text(pattern), function, entry.get()));
    }
    void reply(const Message &request, std::string_view payload)
    {
        bccn_message raw{};
        raw.payload = request.payload.data();
        raw.size = request.payload.size();
        raw.src = request.src.empty() ? nullptr : request.src.c_str();
        run(bccn_reply, &raw, payload.data(), payload.size());
    }

    // --- control requests ---

    void heartbeat(std::chrono::seconds interval, const std::string &text = "")
    {
        run(bccn_heartbeat, detail::clamped(interval), detail::text(text));
    }
    std::string control(const std::string &key, const std::string &value = "")
    {
        const char *answer = nullptr;
        run(bccn_control, detail::text(key), detail::text(value), &answer);
        return answer;
    }
    // JSON: an object, and arrays of objects.
    std::string status() { return json(bccn_status); }
    std::string clients() { return json(bccn_clients); }
    std::string sources() { return json(bccn_sources); }

private:
    detail::State &open() const
    {
        if (!get())
            throw Error(Code::closed, bccn_strerror(BCCN_E_CLOSED));
        return *state_;
    }
    template <class Function, class... Arguments> int run(Function function, Arguments... arguments)
    {
        detail::State &state = open();
        return state.check(function(state.bus, arguments...));
    }
    // The same with a function that calls callbacks, which may destroy the bus. If on_notice throws while a message
    // comes, that leaves the next call, since the message would be lost.
    template <class Function, class... Arguments> int run_callbacks(Function function, Arguments... arguments)
    {
        detail::State &state = open();
        const auto kept = state.calls_back ? state_ : nullptr;
        const int code = function(state.bus, arguments...);
        return code > 0 ? code : state.check(code);
    }
    const bccn_message *next(Milliseconds timeout)
    {
        const bccn_message *raw = nullptr;
        run_callbacks(bccn_receive, &raw, detail::clamped(timeout));
        return raw;
    }
    std::string json(int (*function)(bccn_bus *, const char **))
    {
        const char *text = nullptr;
        run(function, &text);
        return text;
    }
    std::shared_ptr<detail::Entry> make_entry(const std::string &pattern, bool calls)
    {
        const auto entry = std::make_shared<detail::Entry>();
        entry->state = &open();
        entry->pattern = pattern;
        entry->state->calls_back |= calls;
        entry->state->entries.reserve(entry->state->entries.size() + 1); // `add` cannot fail
        return entry;
    }
    Subscription add(const std::shared_ptr<detail::Entry> &entry, int code)
    {
        if (code == 0)
            state_->entries.push_back(entry);
        state_->check(code);
        return Subscription(state_, entry);
    }

    std::shared_ptr<detail::State> state_;
};

} // namespace bccn
#endif
