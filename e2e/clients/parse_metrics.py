"""Scrapes a page with the reference parser of the Prometheus text format and prints one line for each family: name, type, samples."""

import sys
import urllib.request

from prometheus_client.parser import text_string_to_metric_families


def main():
    with urllib.request.urlopen(sys.argv[1], timeout=10) as page:
        if not page.headers["Content-Type"].startswith("text/plain"):
            raise SystemExit(f"content type {page.headers['Content-Type']}")
        text = page.read().decode("utf-8")
    seen = set()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            identity = (sample.name, tuple(sorted(sample.labels.items())))
            if identity in seen:
                raise SystemExit(f"twice: {identity}")
            seen.add(identity)
        print(family.name, family.type, len(family.samples), sep="\t")


main()
