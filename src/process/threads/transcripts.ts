/** Creates the transcripts of one process, and their copy in Redis if it is configured. */
import type { Clock } from '../../base/clock.ts'
import { createTextSeal } from '../../providers/credentials/sealed-text.ts'
import type { VaultKey } from '../../providers/credentials/vault-keys.ts'
import { RedisTranscripts } from '../../storage/transcripts/redis-transcripts.ts'
import { TranscriptStore } from '../../storage/transcripts/transcript-store.ts'
import type { Config } from '../config/settings.ts'

/** Creates the transcripts of this process only. */
export function createTranscripts({ resume, limits }: Config, clock: Clock): TranscriptStore {
  return new TranscriptStore({ ...resume, maxBytes: limits.maxBufferedBytes, clock })
}

export interface SharedTranscripts {
  readonly store: TranscriptStore
  close(): void
}

/** Logs nothing, because the counters already log outages of Redis. */
export const SILENT_LOG = { fault: () => undefined, notice: () => undefined }

/**
 * Redis has at least this long to answer. A counter that gives up sooner counts on its own for a while; here a request
 * would run again, and be paid for again.
 */
const REDIS_TIMEOUT_MS = 1_000

/** Creates the transcripts of this process and, through Redis, of all instances with the same master keys. */
export function startTranscripts(config: Config, keys: readonly VaultKey[], clock: Clock): SharedTranscripts {
  const store = createTranscripts(config, clock)
  const { url, prefix } = config.redis
  if (url === null) return { store, close: () => store.close() }
  const { windowMs } = config.resume
  const seal = createTextSeal(keys, 'transcripts')
  const silenceMs = Math.max(REDIS_TIMEOUT_MS, config.redis.silenceMs)
  const mirror = new RedisTranscripts(store, {
    url,
    prefix,
    windowMs,
    seal,
    clock,
    log: SILENT_LOG,
    silenceMs,
  })
  store.mirror = mirror
  return {
    store,
    close() {
      mirror.close()
      store.close()
    },
  }
}
