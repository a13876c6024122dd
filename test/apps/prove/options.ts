/** Options of a proof: a gateway at this address, nothing else asked for. */
import { plain } from '../../../src/apps/commands/terminal/text.ts'
import { waitingClock } from '../../../src/apps/commands/waiting-clock.ts'
import type { ProveOptions } from '../../../src/apps/prove/prove.ts'

export function proveOptions(
  fields: Pick<ProveOptions, 'url' | 'key'> & Partial<ProveOptions>,
): ProveOptions {
  return {
    headers: [],
    model: null,
    limits: { requests: 1_000, concurrency: 4, seconds: 600 },
    provider: null,
    only: null,
    client: null,
    restartCommand: null,
    secondKey: null,
    directUrl: null,
    pid: null,
    version: '0.0.0',
    plain,
    clock: waitingClock,
    ...fields,
  }
}
