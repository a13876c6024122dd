/**
 * The library undici, loaded at its first use. Most gateways ask their providers by the client of their own and fetch
 * no pages, and it takes 7 MB of each thread.
 */
import { createRequire } from 'node:module'

const load = createRequire(import.meta.url)

/** The library; the first call of a thread takes tens of milliseconds. */
export function undici(): typeof import('undici') {
  return load('undici') as typeof import('undici')
}
