/** Reads how many bytes the kernel holds for the connections to a port of 127.0.0.1: sent but not yet read. Linux. */
import { readFileSync } from 'node:fs'

/** What was written to the clients of this port and has not been read by them. @param table text of /proc/net/tcp */
export function unreadBytes(port: number, table = readFileSync('/proc/net/tcp', 'utf8')): number {
  const wanted = port.toString(16).toUpperCase().padStart(4, '0')
  let sum = 0
  for (const line of table.split('\n').slice(1)) {
    const [, local = '', remote = '', , queues = ''] = line.trim().split(/\s+/)
    const [sending = '0', received = '0'] = queues.split(':')
    // At our end what is on its way, at theirs what has arrived.
    if (local.endsWith(`:${wanted}`)) sum += Number.parseInt(sending, 16)
    if (remote.endsWith(`:${wanted}`)) sum += Number.parseInt(received, 16)
  }
  return sum
}
