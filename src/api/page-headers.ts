/**
 * Headers of pages for people. Such a page cannot be framed, sends no forms, and loads nothing from other hosts.
 */
import type { OutgoingHttpHeaders } from 'node:http'

/** For a page without script and style. It is never cached. */
export const PLAIN_PAGE_HEADERS = {
  'content-type': 'text/html; charset=utf-8',
  'content-security-policy':
    "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cache-control': 'no-store',
} as const satisfies OutgoingHttpHeaders

/** For a page and its assets: scripts, styles and pictures of the same port, and requests to it. */
export const SCRIPTED_PAGE_HEADERS = {
  'content-security-policy': [
    "default-src 'none'",
    "script-src 'self'",
    "style-src 'self'",
    "connect-src 'self'",
    "img-src 'self' data:",
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
    "require-trusted-types-for 'script'",
    "trusted-types 'none'",
  ].join('; '),
  'x-content-type-options': 'nosniff',
  'referrer-policy': 'no-referrer',
  'cross-origin-resource-policy': 'same-origin',
  // Revalidated each time, and answered 304 while nothing has changed.
  'cache-control': 'no-cache',
} as const satisfies OutgoingHttpHeaders

/** For data that a page requests. */
export const PAGE_DATA_HEADERS = {
  'content-type': 'application/json',
  'cache-control': 'no-store',
  'x-content-type-options': 'nosniff',
  'cross-origin-resource-policy': 'same-origin',
} as const satisfies OutgoingHttpHeaders
