/**
 * How many connections the process can have. At its limit of file descriptors accepting fails at once, again and
 * again, and takes a whole core; a connection that is refused by our own cap costs nothing.
 */
import { readFileSync } from 'node:fs'

/** Each connection may need a second descriptor, to a provider; a tenth is left for files and everything else. */
const SHARE = 0.45

/** Open files the process may have, as the system tells it; null where it does not. */
export function descriptorLimit(path = '/proc/self/limits'): number | null {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch {
    return null
  }
  const limit = Number(/^Max open files\s+(\d+)/m.exec(text)?.[1])
  return Number.isNaN(limit) ? null : limit
}

/** The configured number of connections, or less where the process may not have as many descriptors. */
export function connectionCap(configured: number, limit: number | null): number {
  return limit === null ? configured : Math.max(1, Math.min(configured, Math.floor(limit * SHARE)))
}
