package Net::Bccn::Error;

# The exception of every method of Net::Bccn. `code` is a word for programs, `text` a line for people; as a string it is
# the line and the place of the call, as with `die`.

use strict;
use warnings;

use overload '""' => sub { $_[0]->as_string }, bool => sub { 1 }, fallback => 1;

our $VERSION = '0.1.0';

sub throw {
    my ($class, $code, $text) = @_;
    my ($depth, $package, $file, $line) = (0);
    do { ($package, $file, $line) = caller $depth++ } while ($package // '') =~ /\ANet::Bccn\b/;
    die bless { code => $code, text => $text, file => $file // $0, line => $line // 0 }, $class;
}

sub code { return $_[0]{code} }
sub text { return $_[0]{text} }

sub as_string {
    my $self = shift;
    return "$self->{text} at $self->{file} line $self->{line}.\n";
}

1;
