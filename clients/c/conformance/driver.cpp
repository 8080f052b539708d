// The driver of bccn.hpp for the conformance suite: clients/CONFORMANCE.md describes its commands.
#include "../bccn.hpp"

#include <cstdio>
#include <deque>
#include <iostream>
#include <map>
#include <poll.h>
#include <sstream>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;
using bccn::Milliseconds;

// Between looks at events other than messages.
constexpr Milliseconds slice{20};

// An error that is not one of the client.
struct Failure {
    std::string code, text;
};

std::string decoded(const std::string &word)
{
    std::string text;
    for (std::size_t i = 0; word != "%" && i < word.size(); i++) {
        const bool hex = word[i] == '%';
        text += hex ? static_cast<char>(std::stoi(word.substr(i + 1, 2), nullptr, 16)) : word[i];
        i += hex ? 2 : 0;
    }
    return text;
}

std::string encoded(const std::string &text)
{
    static const char digits[] = "0123456789ABCDEF";
    std::string word;
    for (const char each : text) {
        const auto byte = static_cast<unsigned char>(each);
        if (byte > ' ' && byte <= '~' && byte != '%')
            word += each;
        else
            (word += '%') += {digits[byte / 16], digits[byte % 16]};
    }
    return word.empty() ? "%" : word;
}

Milliseconds seconds(const std::string &word)
{
    return std::chrono::duration_cast<Milliseconds>(std::chrono::duration<double>(std::stod(word)));
}

class Driver {
public:
    std::string obey(const std::string &name, const Words &words)
    {
        const auto command = commands().find(name);
        if (command == commands().end())
            throw Failure{"usage", "no such command"};
        if (words.size() < command->second.least || words.size() > command->second.most)
            throw Failure{"usage", "wrong number of arguments"};
        if (command->second.open && !bus_)
            throw Failure{"closed", "there is no open client"};
        return (this->*command->second.function)(words);
    }
    bool forked() const { return forked_; }

private:
    struct Command {
        std::string (Driver::*function)(const Words &);
        std::size_t least, most;
        bool open;
    };

    static const std::map<std::string, Command> &commands()
    {
        static const std::map<std::string, Command> all = {
            {"format", {&Driver::format, 1, 1, false}},       {"pack", {&Driver::pack, 1, 1, false}},
            {"separator", {&Driver::separator, 1, 1, false}}, {"queue", {&Driver::queue, 1, 3, false}},
            {"timeout", {&Driver::timeout, 1, 1, false}},     {"echo", {&Driver::echo, 1, 1, false}},
            {"reconnect", {&Driver::reconnect, 1, 1, false}}, {"tap", {&Driver::tap, 1, 1, false}},
            {"wait", {&Driver::wait_for_daemon, 1, 1, false}}, {"as", {&Driver::as, 1, 1, false}},
            {"report", {&Driver::report, 1, 1, false}},       {"matches", {&Driver::matches, 3, 3, false}},
            {"ask", {&Driver::ask, 2, 2, true}},              {"control", {&Driver::control, 1, 2, true}},
            {"await", {&Driver::await, 0, 0, true}},          {"origin", {&Driver::origin, 0, 0, true}},
            {"dispatch", {&Driver::dispatch, 0, 0, true}},    {"poll", {&Driver::poll_, 1, 1, true}},
            {"notices", {&Driver::notices, 0, 0, true}},      {"cancel", {&Driver::unsupported, 2, 2, false}},
            {"stream", {&Driver::unsupported, 1, 1, false}},
            {"take", {&Driver::unsupported, 2, 2, false}},    {"version", {&Driver::version, 0, 0, false}},
            {"open", {&Driver::open, 0, 1, false}},           {"close", {&Driver::close, 0, 0, false}},
            {"whoami", {&Driver::whoami, 0, 0, true}},        {"name", {&Driver::name, 1, 1, true}},
            {"sub", {&Driver::sub, 1, 1, true}},              {"unsub", {&Driver::unsub, 1, 1, true}},
            {"callback", {&Driver::callback, 1, 1, true}},    {"lost", {&Driver::lost, 0, 0, true}},
            {"status", {&Driver::status, 0, 0, true}},        {"clients", {&Driver::clients, 0, 0, true}},
            {"sources", {&Driver::sources, 0, 0, true}},      {"datagram", {&Driver::datagram, 1, 1, true}},
            {"watch", {&Driver::watch, 1, 1, true}},          {"unwatch", {&Driver::unwatch, 1, 1, true}},
            {"listen", {&Driver::listen, 0, 1, true}},        {"heartbeat", {&Driver::heartbeat, 1, 2, true}},
            {"pub", {&Driver::pub, 2, 2, true}},              {"pub-to", {&Driver::pub_to, 2, 2, true}},
            {"pub-all", {&Driver::pub_all, 1, 1, true}},      {"flood", {&Driver::flood, 2, 3, true}},
            {"barrier", {&Driver::barrier, 0, 0, true}},      {"recv", {&Driver::recv, 1, 1, true}},
            {"count", {&Driver::count, 2, 2, true}},          {"request", {&Driver::request, 3, 4, true}},
            {"serve", {&Driver::serve, 2, 4, true}},          {"fork", {&Driver::fork_, 1, 1, true}},
        };
        return all;
    }

    // --- options ---

    std::string format(const Words &words)
    {
        options_.format = words[0] == "full" ? bccn::Format::full : bccn::Format::plain;
        return "";
    }
    std::string pack(const Words &words)
    {
        options_.pack = words[0] == "on";
        return "";
    }
    std::string separator(const Words &words)
    {
        options_.separator = words[0][0];
        return "";
    }
    std::string queue(const Words &words)
    {
        static const std::map<std::string, bccn::Policy> policies = {
            {"drop-oldest", bccn::Policy::drop_oldest},
            {"drop-newest", bccn::Policy::drop_newest},
            {"block", bccn::Policy::block},
            {"disconnect", bccn::Policy::disconnect},
        };
        options_.queue = {};
        for (const auto &word : words) {
            const auto key = word.substr(0, word.find('=')), value = word.substr(word.find('=') + 1);
            const auto policy = policies.find(value);
            if (key == "packets")
                options_.queue.packets = static_cast<unsigned>(std::stoul(value));
            else if (key == "bytes")
                options_.queue.bytes = std::stoul(value);
            else // the constructor refuses the one behind the last
                options_.queue.policy = policy == policies.end() ? bccn::Policy{5} : policy->second;
        }
        return "";
    }
    std::string timeout(const Words &words)
    {
        options_.timeout = seconds(words[0]);
        return "";
    }
    std::string echo(const Words &words)
    {
        options_.echo = words[0] == "on";
        return "";
    }
    std::string reconnect(const Words &words)
    {
        options_.reconnect = words[0] == "on";
        return "";
    }
    std::string tap(const Words &words)
    {
        options_.tap = words[0] == "off"  ? bccn::Tap::off
                       : words[0] == "on" ? bccn::Tap::on
                                          : bccn::Tap::interface;
        return "";
    }

    std::string wait_for_daemon(const Words &words)
    {
        options_.wait = seconds(words[0]);
        return "";
    }
    std::string as(const Words &words)
    {
        options_.name = words[0];
        return "";
    }
    std::string report(const Words &words)
    {
        reports_ = words[0] == "on";
        return "";
    }

    // --- the client ---

    void connect()
    {
        options_.on_notice = [this](const bccn::Notice &notice) {
            notices_ += note(notice);
            if (notice.kind == bccn::NoticeKind::disconnected)
                events_.push_back("disconnected");
            if (notice.kind == bccn::NoticeKind::reconnected)
                events_.push_back("reconnected");
        };
        if (reports_)
            options_.on_notice = bccn::Options().on_notice;
        bus_.emplace(address_, options_);
    }
    static std::string note(const bccn::Notice &notice)
    {
        static const std::map<bccn::NoticeKind, std::string> kinds = {
            {bccn::NoticeKind::lost, "lost"},
            {bccn::NoticeKind::rejected, "rejected"},
            {bccn::NoticeKind::revoked, "revoked"},
            {bccn::NoticeKind::closing, "closing"},
            {bccn::NoticeKind::disconnected, "disconnected"},
            {bccn::NoticeKind::reconnected, "reconnected"},
            {bccn::NoticeKind::unclaimed, "unclaimed"},
        };
        return " " + kinds.at(notice.kind) + " " + std::to_string(notice.count) + " "
               + (notice.code == bccn::Code::ok ? "%" : bccn::word(notice.code));
    }
    std::string notices(const Words &) { return std::exchange(notices_, ""); }
    void disconnect()
    {
        bus_.reset();
        subscriptions_.clear();
        events_.clear();
        notices_.clear();
    }
    std::string open(const Words &words)
    {
        disconnect();
        address_ = words.empty() ? "" : words[0];
        connect();
        return whoami({});
    }
    std::string close(const Words &)
    {
        disconnect();
        return "";
    }
    std::string unsupported(const Words &) { throw Failure{"unsupported", "not in C++"}; }
    std::string version(const Words &) { return " " + encoded(bccn::version()); }
    std::string whoami(const Words &) { return " " + encoded(bus_->name()); }
    std::string name(const Words &words)
    {
        bus_->set_name(words[0]);
        return whoami({});
    }
    std::string control(const Words &words)
    {
        return " " + encoded(bus_->control(words[0], words.size() > 1 ? words[1] : ""));
    }
    std::string matches(const Words &words) { return bccn::matches(words[0], words[1], words[2][0]) ? " yes" : " no"; }
    std::string lost(const Words &) { return " " + std::to_string(bus_->lost()); }
    std::string status(const Words &) { return " " + encoded(bus_->status()); }
    std::string clients(const Words &) { return " " + encoded(bus_->clients()); }
    std::string sources(const Words &) { return " " + encoded(bus_->sources()); }
    std::string heartbeat(const Words &words)
    {
        bus_->heartbeat(std::chrono::seconds(std::stol(words[0])), words.size() > 1 ? words[1] : "");
        return "";
    }

    // --- publishing ---

    std::string pub(const Words &words)
    {
        bus_->publish(words[0], words[1]);
        return "";
    }
    std::string pub_to(const Words &words)
    {
        bus_->publish_to(words[0], words[1]);
        return "";
    }
    std::string pub_all(const Words &words)
    {
        bus_->publish_all(words[0]);
        return "";
    }
    std::string datagram(const Words &words)
    {
        bus_->send_datagram(words[0]);
        return "";
    }
    std::string flood(const Words &words)
    {
        const long messages = std::stol(words[1]);
        const std::size_t size = words.size() > 2 ? std::stoul(words[2]) : 0;
        bus_->batch([&] {
            for (long i = 1; i <= messages; i++) {
                std::string payload = std::to_string(i);
                payload.resize(std::max(size, payload.size()), '.');
                bus_->publish(words[0], payload);
            }
        });
        return "";
    }
    std::string barrier(const Words &)
    {
        bus_->barrier();
        return "";
    }

    // --- receiving ---

    std::string shown(const std::string &word, const bccn::Message &message) const
    {
        std::string line = word + " " + encoded(message.channel) + " " + encoded(message.payload);
        if (options_.format == bccn::Format::full)
            line += " " + encoded(message.src) + " " + std::to_string(message.seq) + " " + encoded(message.peer) + " "
                    + encoded(message.verdict);
        return line;
    }
    void add(const std::string &word, const bccn::Message &message)
    {
        if (message.lost)
            events_.push_back("lost " + std::to_string(message.lost));
        events_.push_back(shown(word, message));
        last_ = message;
    }
    std::string origin(const Words &)
    {
        using std::chrono::duration_cast, std::chrono::nanoseconds;
        const auto time = duration_cast<nanoseconds>(last_.time.time_since_epoch()).count();
        return " " + std::to_string(time) + " " + encoded(last_.datagram)
               + (last_.interface.empty() ? "" : " " + encoded(last_.interface));
    }
    std::string await(const Words &)
    {
        const auto message = bus_->receive();
        last_ = message.value();
        return " " + shown("msg", last_);
    }
    std::string dispatch(const Words &)
    {
        bus_->dispatch();
        return "";
    }
    std::string poll_(const Words &words)
    {
        pollfd descriptor{bus_->fileno(), POLLIN, 0};
        const bool readable = poll(&descriptor, 1, static_cast<int>(seconds(words[0]).count())) > 0;
        return " " + std::to_string(descriptor.fd) + (readable ? " yes" : " no");
    }
    // Have an event, if there is one in time.
    bool wait(Milliseconds time)
    {
        const auto end = Clock::now() + time;
        while (events_.empty()) {
            const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now());
            bccn::Message message;
            if (bus_->receive(message, std::clamp(left, Milliseconds(0), slice)))
                add("msg", message);
            else if (left.count() <= 0 && events_.empty())
                return false;
        }
        return true;
    }
    std::string recv(const Words &words)
    {
        if (!wait(seconds(words[0])))
            return " timeout";
        const std::string event = " " + events_.front();
        events_.pop_front();
        return event;
    }
    std::string count(const Words &words)
    {
        const unsigned long wanted = std::stoul(words[0]);
        unsigned long received = 0, lost = 0;
        std::string last = "%";
        while (received < wanted && wait(seconds(words[1]))) {
            std::istringstream event(events_.front());
            std::string word, channel;
            event >> word;
            if (word == "lost")
                lost += std::stoul(events_.front().substr(5));
            if (word == "msg") {
                event >> channel >> last;
                received++;
            }
            events_.pop_front();
        }
        return " " + std::to_string(received) + " " + std::to_string(lost) + " " + last;
    }
    std::string sub(const Words &words)
    {
        subscriptions_.push_back(bus_->subscribe(words[0]));
        return "";
    }
    std::string callback(const Words &words)
    {
        subscriptions_.push_back(
            bus_->subscribe(words[0], [this](const bccn::Message &message) { add("call", message); }));
        return "";
    }
    std::string unsub(const Words &words)
    {
        const auto at = std::find_if(subscriptions_.rbegin(), subscriptions_.rend(),
                                     [&](const auto &each) { return each.pattern() == words[0]; });
        if (at == subscriptions_.rend())
            throw Failure{"invalid", "not subscribed"};
        auto ended = *at;
        subscriptions_.erase(std::next(at).base());
        ended.close();
        return "";
    }
    std::string listen(const Words &words)
    {
        if (words.empty())
            bus_->listen();
        else
            bus_->listen([this, words](const bccn::Message &message) { add(words[0], message); });
        return "";
    }

    std::string watch(const Words &words)
    {
        bus_->watch(words[0], [this](const std::string &pattern, bool wanted) {
            events_.push_back("wanted " + encoded(pattern) + (wanted ? " yes" : " no"));
        });
        return "";
    }
    std::string unwatch(const Words &words)
    {
        bus_->unwatch(words[0]);
        return "";
    }

    // --- request and reply ---

    std::string request(const Words &words)
    {
        if (words.size() < 4)
            return " " + encoded(bus_->request(words[0], words[1], seconds(words[2])).payload);
        std::string replies;
        bus_->request_many(
            words[0], words[1], [&](const bccn::Message &reply) { replies += " " + encoded(reply.payload); },
            seconds(words[2]), std::stoi(words[3]));
        return replies;
    }
    std::string ask(const Words &words) { return " " + encoded(bus_->request(words[0], words[1]).payload); }
    // The next one may take as long again.
    void count_request(const Words &words)
    {
        served_++;
        serves_until_ = Clock::now() + seconds(words[1]);
    }
    std::string serve(const Words &words)
    {
        bccn::Subscription serving;
        std::vector<bccn::Message> later; // is replied to when its handler has returned
        count_request(words);
        served_ = 0;
        if (words.size() > 2)
            serving = bus_->serve(words[2], [&](const bccn::Message &request) -> std::optional<std::string> {
                count_request(words);
                if (words.size() == 3)
                    return "re:" + request.question().value();
                later.push_back(request);
                return std::nullopt;
            });
        while (served_ < std::stoi(words[0]) && Clock::now() < serves_until_) {
            const auto message = bus_->receive(slice);
            for (const auto &request : std::exchange(later, {}))
                bus_->reply(request, "re:" + request.question().value());
            if (words.size() > 2 || !message || !message->question())
                continue;
            bus_->reply(*message, "re:" + message->question().value());
            count_request(words);
        }
        serving.close();
        return " " + std::to_string(served_);
    }

    // The child answers the command and goes on with the script; the parent answers the exit of the child.
    std::string fork_(const Words &words)
    {
        std::cout.flush();
        const pid_t child = fork();
        if (child > 0) {
            int status = 0;
            waitpid(child, &status, 0);
            return " " + std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        forked_ = true;
        if (words[0] == "A") {
            disconnect();
            connect();
        }
        return " " + std::to_string(getpid()) + whoami({});
    }

    bccn::Options options_;
    std::optional<bccn::Bus> bus_;
    std::string address_;
    std::vector<bccn::Subscription> subscriptions_; // in the order in which they were made
    std::deque<std::string> events_;
    std::string notices_; // " KIND COUNT CODE" of each that nobody has asked for yet
    bccn::Message last_;
    bool reports_ = false; // notices go where they go by default
    int served_ = 0;
    Clock::time_point serves_until_;
    bool forked_ = false; // a child of fork, whose exit the parent answers
};

} // namespace

int main()
{
    Driver driver;
    std::string line;
    // A child goes on reading where its parent stopped, and the other way round.
    std::setvbuf(stdin, nullptr, _IONBF, 0);
    while (std::getline(std::cin, line)) {
        std::istringstream rest(line);
        std::string name, word, answer;
        Words words;
        rest >> name;
        while (rest >> word)
            words.push_back(decoded(word));
        if (name == "exit")
            break;
        try {
            answer = "ok" + driver.obey(name, words);
        } catch (const Failure &failure) {
            answer = "error " + failure.code + " " + encoded(failure.text);
        } catch (const bccn::Error &error) {
            answer = "error " + bccn::word(error.code()) + " " + encoded(error.what());
        }
        std::cout << answer << std::endl;
    }
    if (driver.forked())
        _exit(0); // the buffers belong to the parent
    return 0;
}
