/** The alert about an agent that runs in a circle or overspends. Main thread; only if receivers are configured. */
import { type Clock, isoInstant } from '../../base/clock.ts'
import type { LoopNote } from '../../pipeline/loops.ts'
import type { Store } from '../../storage/store.ts'
import type { AlertEvent } from './alert-body.ts'

/** `2026-11-29T16`: an alert for each key and kind of loop in an hour. */
const HOUR_CHARS = 13

interface LoopAlertDeps {
  readonly store: Pick<Store, 'keys'>
  readonly raise: (event: AlertEvent) => void
  readonly clock: Clock
}

/** Raises the alert. A key that cannot be read now is named by its hash. Never rejects. */
export async function alertOfLoop({ store, raise, clock }: LoopAlertDeps, note: LoopNote): Promise<void> {
  const { keyHash, workspaceId, kind, times, action } = note
  const record = await store.keys.find(keyHash).catch(() => null)
  raise({
    type: 'loop.detected',
    object: { kind: 'key', id: keyHash, name: record?.name ?? keyHash, workspaceId },
    window: `${kind} ${isoInstant(clock.nowMs()).slice(0, HOUR_CHARS)}`,
    data: kind === 'spend' ? { loop: kind, usd: times / 100, action } : { loop: kind, times, action },
  })
}
