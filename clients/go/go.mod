module github.com/bccnd/bccnd/clients/go

go 1.23
