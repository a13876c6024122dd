/** A batch runner whose provider, the simulated one, has a batch service. */
import type { Test } from 'tap'
import type { SimJobFault } from '../../../src/apps/simulator/batch-jobs.ts'
import { createSim, type Sim } from '../../../src/apps/simulator/simulator.ts'
import type { BatchStatus } from '../../../src/protocol/management/batches.ts'
import type { BatchFormat } from '../../../src/protocol/provider.ts'
import type { BatchRecord } from '../../../src/storage/batches.ts'
import { type BatchWorld, type BatchWorldOptions, startBatchWorld } from '../../support/batch-world.ts'

/** USD per token of its model. */
const SERVED_PRICES = { prompt: '0.000001', completion: '0.000002' }
const SERVED_MODEL = 'served/echo'

interface ServedWorld {
  readonly sim: Sim
  readonly world: BatchWorld
  /** Of the simulated provider. */
  readonly url: string
  /** Of the next jobs. */
  fault: SimJobFault | null
}

interface ServedOptions extends BatchWorldOptions {
  /** Further fields of the row of the provider. */
  readonly row?: Readonly<Record<string, unknown>>
}

export async function startServed(
  t: Pick<Test, 'teardown'>,
  format: BatchFormat = 'openai-chat',
  { row, ...options }: ServedOptions = {},
): Promise<ServedWorld> {
  const state: { fault: SimJobFault | null } = { fault: null }
  const sim = createSim({ jobFaultOf: () => state.fault, keepRequests: 100_000 })
  const { url } = await sim.listen()
  const endpoints = [{ provider: 'served', upstreamModel: 'echo', format, pricing: SERVED_PRICES }]
  const served = {
    slug: 'served',
    name: 'Served',
    format,
    baseUrl: `${url}/v1`,
    apiKey: 'shared-key',
    batch: true,
  }
  const world = await startBatchWorld(t, {
    ...options,
    providers: [{ ...served, ...row }, ...(options.providers ?? [])],
    models: [{ id: SERVED_MODEL, endpoints }, ...(options.models ?? [])],
  } as BatchWorldOptions)
  // Torn down last: the runner may still ask it.
  t.teardown(() => sim.close())
  return {
    sim,
    world,
    url,
    get fault() {
      return state.fault
    },
    set fault(fault) {
      state.fault = fault
    },
  }
}

/** The batch once it is in this state; time flies, since services are asked every few seconds. */
export async function ends(world: BatchWorld, id: string, ...statuses: BatchStatus[]): Promise<BatchRecord> {
  await world.reaches(id, 'in_progress', ...statuses)
  await world.until(async () => statuses.includes((await world.batch(id)).status), 100)
  return await world.batch(id)
}

/** Cancels a running batch, as the handler does. */
export async function cancel(world: BatchWorld, id: string): Promise<void> {
  const now = new Date(world.clock.nowMs()).toISOString()
  await world.store.batches.work.move(id, ['in_progress'], 'cancelling', now)
  world.runner.wake()
}

/** Live requests that the provider got. */
export function liveCalls({ requests }: Sim): number {
  return requests.filter(({ format }) => format !== null).length
}

/** The texts of chat completions in results. */
export function textsOf(results: Awaited<ReturnType<BatchWorld['results']>>): (string | null)[] {
  return results.map(({ document }) => {
    const body = document.response?.body as { choices?: { message: { content: string } }[] } | undefined
    return body?.choices?.[0]?.message.content ?? null
  })
}
