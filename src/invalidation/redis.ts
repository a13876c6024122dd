/** Word between instances by Redis: one connection listens, one speaks. Main thread. */

import type { Timer } from '../clock.ts'
import { openRedis } from '../storage/redis.ts'
import type { Wire, WireOptions } from './carrier.ts'

/** A connection that nobody speaks on may be dead unnoticed. */
const PROBE_MS = 2_000
/** Nobody waits for an answer. */
const SILENCE_MS = 1_000

export function openRedisWire(options: WireOptions): Wire {
  const { url, channel, clock, log, silenceMs = SILENCE_MS, onMessage, onReady, onSayable } = options
  const listener = openRedis({
    url,
    clock,
    log,
    channel: { name: channel, onMessage },
    onReady,
    silenceMs,
  })
  const quiet = { fault: () => undefined, notice: () => undefined }
  const speaker = openRedis({ url, clock, log: quiet, onReady: onSayable, silenceMs })
  let timer: Timer
  const probe = (): void => {
    if (listener.isReady) listener.send(['PING']).catch(() => undefined)
    timer = clock.after(PROBE_MS, probe)
  }
  timer = clock.after(PROBE_MS, probe)
  return {
    say: text => speaker.send(['PUBLISH', channel, text]),
    async close() {
      timer.cancel()
      listener.close()
      speaker.close()
    },
  }
}
