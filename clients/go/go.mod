// A tag clients/go/v0.1.0 in the repository publishes it.
module github.com/bccnd/bccnd/clients/go

go 1.23
