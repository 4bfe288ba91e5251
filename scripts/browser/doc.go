// Package browser tests the web pages in headless Chromium: the pages of tasks/ui with a separate Redis, and the pages of an
// orchestrator that the muster binary serves.
//
// It discovers the pages by following the links of the navigation and the first links of each section. Each page must be small,
// respond with success, pass axe-core (light and dark), fit into 390 pixels, load no external resources and write no error to
// the console. With -short, neither axe-core nor the width is checked, and the pages of an
// orchestrator are not opened.
//
// It is a separate module, so that Muster does not depend on chromedp. Run it with make browser. It skips the tests without a
// Chromium; MUSTER_TEST_BROWSER is its path. If MUSTER_TEST_PICTURES is a directory, screenshots of all pages are written there,
// 1280 and 390 pixels wide, light and dark. MUSTER_TEST_BINARY is the path of an existing muster binary.
package browser
