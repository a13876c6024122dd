/** Sends and receives invalidations with Redis publish/subscribe: one connection receives, one sends. Main thread. */
import type { Timer } from '../../base/clock.ts'
import { openRedis } from '../redis.ts'
import type { Carrier, CarrierOptions } from './bus.ts'

/** An idle connection may be dead without an error, so it is probed. */
const PROBE_INTERVAL_MS = 2_000
/** Longer than the limit of the counters, because no request waits for an answer here. */
const CARRIER_SILENCE_MS = 1_000

export function openRedisCarrier(options: CarrierOptions): Carrier {
  const { url, channel, clock, log, silenceMs = CARRIER_SILENCE_MS } = options
  const { onMessage, onReceiving, onSending } = options
  const subscriber = openRedis({
    url,
    clock,
    log,
    channel: { name: channel, onMessage },
    onReady: onReceiving,
    silenceMs,
  })
  // The subscriber logs outages for both connections.
  const noLog = { fault: () => undefined, notice: () => undefined }
  const publisher = openRedis({ url, clock, log: noLog, onReady: onSending, silenceMs })
  let timer: Timer
  const probe = (): void => {
    if (subscriber.isReady) subscriber.send(['PING']).catch(() => undefined)
    timer = clock.after(PROBE_INTERVAL_MS, probe)
  }
  timer = clock.after(PROBE_INTERVAL_MS, probe)
  return {
    send: text => publisher.send(['PUBLISH', channel, text]),
    async close() {
      timer.cancel()
      subscriber.close()
      publisher.close()
    },
  }
}
