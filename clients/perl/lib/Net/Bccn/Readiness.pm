package Net::Bccn::Readiness;

# A descriptor for select, poll and epoll loops that stays the same while connections come and go: an epoll of the
# socket and a timer. The timer rings when messages wait in the client, or when it is time to connect again.
#
# Neither Perl nor its core modules have functions for these, so syscall() calls them by number.

use strict;
use warnings;

use Config;
use POSIX ();

use Net::Bccn::Error;

our $VERSION = '0.1.0';

use constant {
    EPOLL_CTL_ADD   => 1,
    EPOLL_CTL_DEL   => 2,
    EPOLLIN         => 1,
    CLOEXEC         => oct '2000000',
    NONBLOCK        => oct '4000',
    CLOCK_MONOTONIC => 1,
    TFD_ABSTIME     => 1,
    NEVER           => 9**9**9,
};

# epoll_create1, epoll_ctl, timerfd_create, timerfd_settime; newer machines share the numbers of the first row.
my @NUMBERS = (
    [ qr/\A(?:aarch64|riscv64|loongarch64)-linux/, 20,  21,  85,  86 ],
    [ qr/\Ax86_64-linux(?!-gnux32)/,               291, 233, 283, 286 ],
    [ qr/\A(?:powerpc64|ppc64)(?:le)?-linux/,      315, 237, 306, 311 ],
    [ qr/\As390x-linux/,                           327, 250, 319, 320 ],
);
my ($numbers) = grep { $Config{archname} =~ $_->[0] } @NUMBERS;
my $event_format = $Config{archname} =~ /\Ax86_64/ ? 'L Q' : 'L x4 Q';

sub new {
    my ($class) = @_;
    Net::Bccn::Error->throw('unsupported', "no descriptor for poll loops on $Config{archname}") if !$numbers;
    my $self = bless { watched => undef, ring_at => NEVER }, $class;
    $self->{epoll} = _call(1, CLOEXEC);
    $self->{timer} = _call(3, CLOCK_MONOTONIC, CLOEXEC | NONBLOCK);
    $self->_control(EPOLL_CTL_ADD, $self->{timer});
    return $self;
}

sub fd { return $_[0]{epoll} }

# Watches this socket from now on, or none.
sub watch {
    my ($self, $fd) = @_;
    $self->_control(EPOLL_CTL_DEL, $self->{watched}) if defined $self->{watched}; # a child of fork may have a copy
    $self->_control(EPOLL_CTL_ADD, $fd) if defined $fd;
    $self->{watched} = $fd;
    return;
}

# Makes the descriptor readable from this time of the monotonic clock on: 0 for now, NEVER for no time.
sub ring_at {
    my ($self, $time) = @_;
    return if $time == $self->{ring_at};
    my ($seconds, $nanoseconds) = $time == NEVER ? (0, 0) : (int $time, int(($time - int $time) * 1e9) || 1);
    _call(4, $self->{timer}, TFD_ABSTIME, pack('l!4', 0, 0, $seconds, $nanoseconds), 0);
    $self->{ring_at} = $time;
    return;
}

sub _control {
    my ($self, $operation, $fd) = @_;
    return _call(2, $self->{epoll}, $operation, $fd, pack $event_format, EPOLLIN, 0);
}

sub _call {
    my ($which, @arguments) = @_;
    my $result = syscall $numbers->[$which], @arguments;
    Net::Bccn::Error->throw('unavailable', "no descriptor: $!") if $result < 0;
    return $result;
}

sub DESTROY {
    my $self = shift;
    POSIX::close($_) for grep { defined } @{$self}{qw(epoll timer)};
    return;
}

1;
