// Package browser tests the web pages in a real browser, a headless Chromium: those of tasks/ui beside a Redis of their
// own, and those of an orchestrator that the muster binary serves.
//
// It follows the links of the navigation, and the first links of every place on those pages, so it finds the pages that
// there are. Each must be small, answer, be free of what axe-core finds (in light and in dark), fit into 390 pixels, load
// nothing from elsewhere and write no error to the console.
//
// It is a module of its own, so that chromedp is no dependency of Muster. Run it with make browser. Without a Chromium
// the tests are skipped; MUSTER_TEST_BROWSER names one. If MUSTER_TEST_PICTURES is a folder, a picture of every page is
// written there, 1280 and 390 pixels wide, light and dark. MUSTER_TEST_BINARY is the path of a muster that is built already.
package browser
