# Tests that the manual has no POD errors, a heading for every public method, and every option, error and notice.
use strict;
use warnings;

use FindBin;
use Pod::Checker ();
use Test::More;

use Net::Bccn;

my $file = "$FindBin::Bin/../lib/Net/Bccn.pm";
open my $nowhere, '>', \my $complaints or die;
my $checker = Pod::Checker->new(-warnings => 1);
$checker->parse_from_file($file, $nowhere);
is($checker->num_errors + $checker->num_warnings, 0, 'no complaints') or diag $complaints;

open my $source, '<', $file or die "$file: $!";
my ($code, $pod) = split /^__END__$/m, do { local $/ = undef; <$source> };
my %methods = map { $_ => 1 } $code =~ /^sub ([a-z]\w*)/mg;
my @words;
my @silent = grep { $pod !~ /^=head2 .*\b$_\b/m } sort keys %methods;
is_deeply(\@silent, [], 'every method is in the manual');
cmp_ok(scalar keys %methods, '>', 20, 'there are methods');

for my $path ($file, glob "$FindBin::Bin/../lib/Net/Bccn/*.pm") {
    open my $part, '<', $path or die "$path: $!";
    ($code) = split /^__END__$/m, do { local $/ = undef; <$part> };
    my ($defaults) = $code =~ /^my %DEFAULTS = \((.*?)^\);/ms;
    push @words, $code =~ /_notice\('(\w+)'/g, $code =~ /(?:_fail|throw)\('([\w-]+)'/g;
    push @words, ($defaults // '') =~ /^ +(\w+) +=>/mg;
}
my %words = map { $_ => 1 } @words;
is_deeply([ grep { $pod !~ /^    \Q$_\E +\S/m } sort keys %words ], [], 'every option, error and notice is');
cmp_ok(scalar keys %words, '>', 25, 'there are such words');

done_testing;
