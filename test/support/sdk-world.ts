/** A gateway for official clients: simulated models of every format, and a parrot that says what a test wants. */
import type { Test } from 'tap'
import { simModel } from '../../src/apps/simulator/rows.ts'
import { startGateway, type TestGateway } from './gateway.ts'
import { FORMATS, type Parrot, parrotRows, startParrot } from './provider.ts'

/** Of the simulated models, by the format in which they are asked: that of Responses has no prefix. */
export const PREFIXES = ['', 'chat-', 'messages-', 'gemini-'] as const
/** Never over while a test looks. */
export const ENDLESS = 'write-100000-20'
/** Of an answer. */
export const ID = /^gen-\d+-\w{20}$/
/** A picture with one dot. */
export const DOT =
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=='
export const CITY = {
  type: 'object',
  properties: { city: { type: 'string' } },
  required: ['city'],
  additionalProperties: false,
} as const

export async function startSdkWorld(
  t: Pick<Test, 'teardown'>,
): Promise<{ readonly gateway: TestGateway; readonly parrot: Parrot }> {
  const parrot = await startParrot(t)
  const rows = parrotRows(parrot.url)
  const names = [ENDLESS, ...[413, 429, 500, 503].map(status => `fail-status-${status}`)]
  const models = FORMATS.flatMap(format => names.map(name => simModel(name, format)))
  const gateway = await startGateway({ ...rows, models: [...rows.models, ...models] })
  t.teardown(() => gateway.close())
  return { gateway, parrot }
}

/** What a call throws. */
export const thrownBy = (work: Promise<unknown>): Promise<unknown> =>
  work.then(
    () => null,
    (thrown: unknown) => thrown,
  )
