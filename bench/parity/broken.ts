/** The self-check of a parity run: a reply with one changed byte must be reported as different. Pure. */
import type { Reply } from './client.ts'

/** Longer than any placeholder hides: an identifier has 35 characters, timings are cut out of numbers. */
const REACH = 64

/**
 * The reply with one byte changed near its middle, at the first place that `isSeen`; without such a place, at the
 * middle. A reply without a body is returned with another status.
 */
export function broken(reply: Reply, isSeen: (changed: Reply) => boolean): Reply {
  if (reply.body.length === 0) return { ...reply, status: reply.status + 1 }
  const middle = Math.floor(reply.body.length / 2)
  const end = Math.min(reply.body.length, middle + REACH)
  for (let at = middle; at < end; at++) {
    const changed = changedAt(reply, at)
    if (isSeen(changed)) return changed
  }
  return changedAt(reply, middle)
}

function changedAt(reply: Reply, at: number): Reply {
  const body = Buffer.from(reply.body)
  body.writeUInt8(body.readUInt8(at) ^ 1, at)
  return { ...reply, body }
}
