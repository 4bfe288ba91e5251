"""Scrapes the site of the benchmark with Scrapy and prints how many items it had and in how many seconds."""

import sys
import time

import scrapy
from scrapy.crawler import CrawlerProcess


class Bench(scrapy.Spider):
    name = "bench"
    count = 0

    def start_requests(self):
        Bench.began = time.monotonic()
        yield scrapy.Request(sys.argv[1] + "/list/0")

    def parse(self, response):
        for link in response.css(".item a"):
            yield response.follow(link, self.parse_item)
        for link in response.css("a.next"):
            yield response.follow(link, self.parse)

    def parse_item(self, response):
        Bench.count += 1
        yield {
            "sku": response.css("[data-sku]::attr(data-sku)").get(),
            "name": response.css("h1.name::text").get(),
            "price": response.css(".price::text").get(),
            "stock": response.css(".stock::text").get(),
            "rating": response.css(".rating::attr(data-rating)").get(),
            "tags": response.css(".tags li::text").getall(),
            "seller": response.css(".seller b::text").get() or response.css(".shop::text").get(),
            "text": response.css(".description p::text").get(),
        }

    def closed(self, reason):
        print(Bench.count, time.monotonic() - Bench.began)


process = CrawlerProcess(settings={
    "LOG_LEVEL": "ERROR",
    "ROBOTSTXT_OBEY": False,
    "CONCURRENT_REQUESTS": int(sys.argv[2]),
    "CONCURRENT_REQUESTS_PER_DOMAIN": int(sys.argv[2]),
    "TELNETCONSOLE_ENABLED": False,
    "FEEDS": {sys.argv[3]: {"format": "jsonlines"}},
})
process.crawl(Bench)
process.start()
