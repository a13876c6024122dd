/** The rollout of a route, as the API shows it. */
import { type Static, Type } from '@sinclair/typebox'
import { oneOf } from '../json/schema.ts'
import { ALL_PERCENT, ROLLOUT_STATES } from '../rollout.ts'

export const RolloutAnswer = Type.Object({
  route: Type.String({ description: 'The name of the route.' }),
  candidate: Type.String({ description: 'The model that is tried.' }),
  state: oneOf(...ROLLOUT_STATES),
  step: Type.Integer({ minimum: 0, description: 'The place in steps of the configuration, from 0.' }),
  share: Type.Number({
    minimum: 0,
    maximum: ALL_PERCENT,
    description: "Per cent of the route's requests that go to the candidate.",
  }),
  reason: Type.String({ description: 'Why it is where it is, in words.' }),
})
export type RolloutAnswer = Static<typeof RolloutAnswer>
