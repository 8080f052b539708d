#!/bin/sh
# Builds the library, the driver and the worker into build/, with a JDK alone.
set -eu
cd "$(dirname "$0")/.."
if [ -e build/done ] && [ -z "$(find src/main conformance examples -newer build/done)" ]; then
    exit 0
fi
rm -rf build/main build/programs build/done
mkdir -p build/main build/programs
# javac ends before a slower compiler of its own would pay.
compile() { javac -J-XX:TieredStopAtLevel=1 -J-XX:+UseSerialGC -Xlint:all -Werror --release 17 "$@"; }
compile -Xdoclint:all/protected -d build/main $(find src/main -name '*.java')
compile -cp build/main -d build/programs conformance/*.java examples/*.java
touch build/done
