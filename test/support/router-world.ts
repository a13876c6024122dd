/** A gateway with sixty models of known prices and ranks, all of them served by the simulated provider's echo. */
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Test } from 'tap'
import { TASK_TYPES } from '../../src/features/plugins/routers/task-types.ts'
import type { Config } from '../../src/process/config/settings.ts'
import type { ResponseResource } from '../../src/protocol/response.ts'
import { startGateway, type TestGateway, type TestGatewayOptions } from './gateway.ts'
import { ScriptedProvider } from './provider.ts'
import type { OracleModel, OracleTask } from './router-oracle.ts'
import { tempFolder } from './temp-folder.ts'

export interface RouterWorld {
  readonly gateway: TestGateway
  readonly helper: ScriptedProvider
  readonly models: readonly OracleModel[]
  readonly tasks: Readonly<Record<string, OracleTask>>
}

const AUTHORS = ['ash', 'birch', 'cedar', 'elm', 'fir', 'oak']

/** Numbers from 0 to 1, the same each time. */
export function createNumbers(seed: number): () => number {
  let state = seed
  return () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return state / 2 ** 32
  }
}

/** Sixty models: some cost nothing, some have no known price, some cost the same. */
function routerModels(): readonly OracleModel[] {
  const next = createNumbers(11)
  return Array.from({ length: 60 }, (_, at): OracleModel => {
    const id = `${AUTHORS[at % AUTHORS.length]}/model-${at}`
    const price = at % 10 === 7 ? 0 : (1 + Math.floor(next() * 40)) / 1e7
    const completion = at % 10 === 7 ? 0 : Math.round(price * (2 + Math.floor(next() * 4)) * 1e9) / 1e9
    const coding = at % 3 === 0 ? Math.round(next() * 100) / 100 : 0
    return at % 13 === 5
      ? { id, prompt: null, completion: null, coding }
      : { id, prompt: price, completion, coding }
  })
}

function routerTasks(models: readonly OracleModel[]): Readonly<Record<string, OracleTask>> {
  const next = createNumbers(23)
  return Object.fromEntries(
    TASK_TYPES.map(type => {
      const ranked = models.filter(() => next() < 0.6)
      const shares = ranked.map(({ id }) => [id, Math.round(next() * 1000) / 10_000] as const)
      const level = (['low', 'medium', 'high'] as const)[Math.floor(next() * 3)] ?? 'medium'
      const task = {
        inputTokens: 100 + Math.floor(next() * 5_000),
        outputTokens: 50 + Math.floor(next() * 2_000),
        level,
        models: Object.fromEntries(shares),
      }
      return [type, task]
    }),
  )
}

export async function startRouterWorld(
  t: Test,
  options: TestGatewayOptions & { readonly classifier?: boolean } = {},
): Promise<RouterWorld> {
  const models = routerModels()
  const tasks = routerTasks(models)
  const coding = Object.fromEntries(
    models.filter(each => each.coding > 0).map(each => [each.id, each.coding]),
  )
  const rankings = join(tempFolder(), 'rankings.json')
  writeFileSync(rankings, JSON.stringify({ asOf: '2026-11-01', tasks, coding }))
  const helper = new ScriptedProvider()
  const baseUrl = await helper.listen()
  const gateway = await startGateway({
    ...options,
    providers: [{ slug: 'helper', name: 'Helper', format: 'openai-chat', baseUrl, apiKey: 'x' }],
    models: [...models.map(row), HELPER, ...(options.models ?? [])],
    routers: { classifier: options.classifier === true ? { model: HELPER.id } : null, rankings },
  })
  t.teardown(async () => {
    await gateway.close()
    await helper.close()
  })
  return { gateway, helper, models, tasks }
}

const HELPER = {
  id: 'helper/small',
  endpoints: [
    { provider: 'helper', upstreamModel: 'small', pricing: { prompt: '0.001', completion: '0.001' } },
  ],
}

function row({ id, prompt, completion }: OracleModel): Config['models'][number] {
  const pricing =
    prompt === null || completion === null
      ? {}
      : { pricing: { prompt: prompt.toFixed(12), completion: completion.toFixed(12) } }
  return { id, endpoints: [{ provider: 'sim', upstreamModel: 'echo', ...pricing }] }
}

interface Routed {
  readonly status: number
  readonly body: ResponseResource & {
    readonly error: { readonly message: string; readonly metadata?: Readonly<Record<string, unknown>> } | null
  }
  /** Of the stage of the router. */
  readonly data: Readonly<Record<string, unknown>>
  /** Its first choice, then the others. */
  readonly named: readonly unknown[]
}

export async function askRouter(
  { gateway }: Pick<RouterWorld, 'gateway'>,
  body: object,
  headers: Record<string, string> = {},
): Promise<Routed> {
  const answer = await gateway.respond(
    { input: 'Hi', ...body },
    { headers: { 'x-gateway-metadata': 'enabled', ...headers } },
  )
  const read = (await answer.json()) as Routed['body']
  const stage = read.gateway_metadata?.pipeline?.find(({ type }) => type === 'plugin')
  const data = stage?.data ?? {}
  const named = [data['resolved_to'], ...((data['fallback_models'] as unknown[] | undefined) ?? [])]
  return { status: answer.status, body: read, data, named }
}

interface LabelledPrompt {
  readonly type: string
  readonly text: string
}

/** Five hundred prompts with the type of their task. */
export function labelledPrompts(): readonly LabelledPrompt[] {
  const file = join(import.meta.dirname, '../fixtures/routers/prompts.txt')
  const prompts: LabelledPrompt[] = []
  let type = ''
  for (const line of readFileSync(file, 'utf8').split('\n')) {
    if (line.startsWith('= ')) type = line.slice(2)
    else if (line !== '') prompts.push({ type, text: line.replaceAll('\\n', '\n') })
  }
  return prompts
}
