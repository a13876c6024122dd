/**
 * Requests of the gateway itself, such as to an evaluator. They run through its own pipeline, but without plugins, on
 * shared keys and without limits. Of the caller's guardrails only those on where data may go apply, because the request
 * quotes the caller. The usage records belong to the service and name the exchange.
 */

import { unixSeconds } from '../clock.ts'
import { NO_CREDENTIALS } from '../credentials/catalog.ts'
import { GatewayError, INTERNAL_MESSAGE } from '../errors.ts'
import { generationId } from '../ids.ts'
import { FREE, type Quota } from '../limits/quota.ts'
import { Stopwatch } from '../metrics/stages.ts'
import type { Caller } from '../protocol/records.ts'
import { SERVICE_ORGANIZATION_ID } from '../storage/usage.ts'
import { FinalSink } from './answer/answer.ts'
import type { Ask } from './exchange.ts'
import { type Guard, NO_GUARD } from './guard/guard.ts'
import { NO_PLUGINS } from './plugin-chain.ts'
import { createGateway, type GatewayDeps } from './respond.ts'
import type { Restrictions } from './routing/rank.ts'

const SERVICE: Caller = {
  keyHash: '',
  organizationId: SERVICE_ORGANIZATION_ID,
  workspaceId: null,
  memberId: null,
  limit: null,
}
const NO_TOOLS: GatewayDeps['tools'] = new Map()
const UNLIMITED: Quota = { limits: () => false, limitsMoney: () => false, admit: () => FREE }

/** Dependencies of a gateway that are the same for every caller. */
export type SharedDeps = Omit<GatewayDeps, 'plugins' | 'tools' | 'quota' | 'credentials' | 'guard'>

export interface AskDeps extends SharedDeps {
  readonly guard: Pick<Guard, 'restrictions'>
}

export function createAsk(deps: AskDeps): Ask {
  const gatewayWith = (guard: Guard) =>
    createGateway({
      ...deps,
      plugins: NO_PLUGINS,
      tools: NO_TOOLS,
      guard,
      quota: UNLIMITED,
      credentials: { of: () => NO_CREDENTIALS },
    })
  const unguarded = gatewayWith(NO_GUARD)
  const { clock } = deps
  return async (request, { parent, deadlineMs }) => {
    const ending = new AbortController()
    const leave = (): void => ending.abort(parent.signal.reason)
    const timer = clock.after(deadlineMs, () =>
      ending.abort(new GatewayError('deadline_exceeded', 'Operation timed out')),
    )
    if (parent.signal.aborted) leave()
    else parent.signal.addEventListener('abort', leave, { once: true })
    const sink = new FinalSink()
    try {
      const restrictions = await deps.guard.restrictions(parent.caller)
      const gateway = restrictions === null ? unguarded : gatewayWith(dataGuard(restrictions))
      const outcome = await gateway.respond(
        {
          id: generationId(unixSeconds(clock)),
          parent: parent.id,
          caller: SERVICE,
          dialect: 'responses',
          request: { ...request, stream: false },
          withMetadata: false,
          dataRegion: null,
          watch: new Stopwatch(clock.monotonicMs()),
          held: parent.held,
          signal: ending.signal,
        },
        sink,
      )
      if (!outcome.answered) throw outcome.error
      // An aborted one is answered by silence.
      ending.signal.throwIfAborted()
      if (sink.response === null) throw outcome.refused ?? new GatewayError('internal', INTERNAL_MESSAGE)
      return sink.response
    } finally {
      timer.cancel()
      parent.signal.removeEventListener('abort', leave)
    }
  }
}

/** Keeps what is asked where the caller's own requests may go. */
function dataGuard(all: Restrictions): Guard {
  const restrictions: Restrictions = { ...all, excludedBy: all.helperExcludedBy }
  const guarding = { restrictions, input: null, reply: null }
  return { request: () => guarding, storedReply: () => guarding, restrictions: () => restrictions }
}
