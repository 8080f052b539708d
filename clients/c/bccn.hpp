// libbccn for C++17. A Bus owns its bccn_bus, throws errors, and takes std::string_view and callables; get() gives the
// bccn_bus for the functions of bccn.h.
//
//     bccn::Bus bus;
//     bus.subscribe("demo/>");
//     bus.send("demo/greeting", "hello");
//     while (auto message = bus.receive(1s))
//         std::cout << message->channel << ' ' << message->payload << '\n';
#ifndef BCCN_HPP
#define BCCN_HPP

#include "bccn.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <limits>
#include <list>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace bccn {

// what() is a line for people; code() is one of BCCN_E_....
class Error : public std::runtime_error {
public:
    Error(int code, const std::string &text) : std::runtime_error(text), code_(code) {}
    int code() const noexcept { return code_; }

private:
    int code_;
};

// Views into the bus, which are valid until it receives again. See bccn_message.
struct Message {
    std::string_view channel, payload, src, peer, verdict, datagram;
    std::uint64_t lost = 0, seq = 0, time_ns = 0;
    bccn_message raw; // for the functions of bccn.h

    explicit Message(const bccn_message &from)
        : channel(from.channel), payload(static_cast<const char *>(from.payload), from.size), src(text(from.src)),
          peer(text(from.peer)), verdict(text(from.verdict)),
          datagram(static_cast<const char *>(from.datagram), from.datagram_size), lost(from.lost), seq(from.seq),
          time_ns(from.time_ns), raw(from)
    {
    }

private:
    static std::string_view text(const char *from) { return from ? from : std::string_view(); }
};

// The options of bccn_open, all zero at first.
struct Options : bccn_options {
    Options() : bccn_options() {}
};

class Bus {
public:
    using Milliseconds = std::chrono::milliseconds;
    using Callback = std::function<void(const Message &)>;
    static constexpr Milliseconds forever{-1};

    Bus() : Bus(nullptr) {}
    explicit Bus(const char *address, const bccn_options &options = Options())
    {
        int code = bccn_open(&bus_, address, &options);
        if (code < 0) {
            Error error(code, bccn_error_text(bus_));
            bccn_close(bus_);
            throw error;
        }
    }
    ~Bus() { bccn_close(bus_); }
    Bus(const Bus &) = delete;
    Bus &operator=(const Bus &) = delete;
    Bus(Bus &&other) noexcept
        : bus_(std::exchange(other.bus_, nullptr)), callbacks_(std::move(other.callbacks_))
    {
    }
    Bus &operator=(Bus &&other) noexcept
    {
        std::swap(bus_, other.bus_);
        std::swap(callbacks_, other.callbacks_);
        return *this;
    }

    bccn_bus *get() const noexcept { return bus_; }
    std::string name() { return bccn_get_name(bus_); }
    void set_name(const std::string &name) { check(bccn_set_name(bus_, name.c_str())); }
    int fd() { return check(bccn_fd(bus_)); }
    void heartbeat(int seconds, const std::string &text = "")
    {
        check(bccn_heartbeat_start(bus_, seconds, text.c_str()));
    }

    void send(const std::string &channel, std::string_view payload)
    {
        check(bccn_send(bus_, channel.c_str(), payload.data(), payload.size()));
    }
    void send_all(std::string_view payload) { check(bccn_send_all(bus_, payload.data(), payload.size())); }
    void send_to(const std::string &target, std::string_view payload)
    {
        check(bccn_send_to(bus_, target.c_str(), payload.data(), payload.size()));
    }
    void barrier() { check(bccn_barrier(bus_)); }

    // bus.batch([&] { ...send... }) packs the messages that the function sends. See bccn_batch_begin.
    template <class Function> void batch(Function &&function)
    {
        check(bccn_batch_begin(bus_));
        try {
            std::forward<Function>(function)();
        } catch (...) {
            bccn_batch_end(bus_);
            throw;
        }
        check(bccn_batch_end(bus_));
    }

    void subscribe(const std::string &pattern) { check(bccn_subscribe(bus_, pattern.c_str())); }
    void unsubscribe(const std::string &pattern) { check(bccn_unsubscribe(bus_, pattern.c_str())); }
    // The callback lives as long as the bus. An exception in it calls std::terminate, since it cannot pass through C.
    void listen(const std::string &pattern, Callback callback)
    {
        callbacks_.push_back(std::move(callback));
        int code = bccn_listen(bus_, pattern.c_str(), call, &callbacks_.back());
        if (code < 0)
            callbacks_.pop_back();
        check(code);
    }
    std::optional<Message> receive(Milliseconds timeout = forever)
    {
        return found(bccn_recv(bus_, &message_, clamped(timeout)), message_);
    }
    int dispatch() { return check(bccn_dispatch(bus_)); }

    std::optional<Message> request(const std::string &channel, std::string_view question, Milliseconds timeout)
    {
        return found(bccn_request(bus_, channel.c_str(), question.data(), question.size(), &answer_,
                                  clamped(timeout)),
                     answer_);
    }
    std::optional<Message> next_answer(Milliseconds timeout)
    {
        return found(bccn_next_answer(bus_, &answer_, clamped(timeout)), answer_);
    }
    static std::optional<std::string_view> question(const Message &request)
    {
        std::size_t size;
        const void *at = bccn_question(&request.raw, &size);
        if (!at)
            return std::nullopt;
        return std::string_view(static_cast<const char *>(at), size);
    }
    void reply(const Message &request, std::string_view answer)
    {
        check(bccn_reply(bus_, &request.raw, answer.data(), answer.size()));
    }

private:
    // An int holds 24 days. A longer wait is cut to that, and not to its lower bits.
    static int clamped(Milliseconds timeout)
    {
        return static_cast<int>(std::min<Milliseconds::rep>(timeout.count(), std::numeric_limits<int>::max()));
    }
    int check(int code) const
    {
        if (code < 0)
            throw Error(code, bccn_error_text(bus_));
        return code;
    }
    std::optional<Message> found(int code, const bccn_message &message) const
    {
        return check(code) ? std::optional<Message>(Message(message)) : std::nullopt;
    }
    static void call(bccn_bus *, const bccn_message *message, void *user) noexcept
    {
        (*static_cast<Callback *>(user))(Message(*message));
    }

    bccn_bus *bus_ = nullptr;
    std::list<Callback> callbacks_; // a list, since the bus keeps their addresses
    bccn_message message_{}, answer_{};
};

} // namespace bccn
#endif
