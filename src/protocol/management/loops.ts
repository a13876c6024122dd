/** The policy for agents that run in a circle: the field `loops` of keys and workspaces. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { maybe, nullable, oneOf } from '../json/schema.ts'
import { inBodies } from './record.ts'

const ACTIONS = ['off', 'tell', 'stop'] as const
const repeatCount = Type.Integer({ minimum: 2, maximum: 1_000 })
const policyFields = {
  /** `tell`: in a header and an alert; `stop`: the request is refused too. */
  action: oneOf(...ACTIONS),
  /** How often the same call with the same result is a loop. */
  repeats: repeatCount,
  /** How often a cycle of two or three calls with the same results is a loop. */
  cycles: repeatCount,
  /** USD that a session may spend without a new message of the user; null: any amount. */
  usd: nullable(Type.Number({ exclusiveMinimum: 0, maximum: 1_000_000 })),
}
const DEFAULTS = { repeats: 5, cycles: 4, usd: null }

export const LoopPolicy = Type.Object(policyFields)
export type LoopPolicy = Readonly<Static<typeof LoopPolicy>>

const body = Type.Union(
  [
    policyFields.action,
    Type.Object(
      {
        action: policyFields.action,
        repeats: Type.Optional(policyFields.repeats),
        cycles: Type.Optional(policyFields.cycles),
        usd: Type.Optional(policyFields.usd),
      },
      { additionalProperties: false },
    ),
  ],
  {
    expected: 'off, tell or stop, or an object with action, repeats (2 to 1000), cycles (2 to 1000) and usd',
  },
)

/** Of a key, null: as its workspace; of a workspace, null: off. */
export const loopsField = {
  schema: nullable(LoopPolicy),
  column: 'json',
  initial: null,
  ...inBodies(maybe(body)),
  read(loops: Static<typeof body>): LoopPolicy {
    const { action, ...numbers } = typeof loops === 'string' ? { action: loops } : loops
    return { action, ...DEFAULTS, ...numbers }
  },
} as const
