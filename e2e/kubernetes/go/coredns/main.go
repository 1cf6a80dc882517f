// Command coredns is CoreDNS with the few plugins that the bed's DNS needs:
// all of them would take minutes more to build.
package main

import (
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/template"
)

func main() {
	// A query goes through them in this order.
	dnsserver.Directives = []string{"bind", "errors", "cache", "kubernetes", "template"}
	coremain.Run()
}
