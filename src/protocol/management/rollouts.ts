/** The rollout of a route, as the API shows it. */
import { type Static, Type } from '@sinclair/typebox'
import { count, oneOf } from '../json/schema.ts'
import { ALL_PERCENT, ROLLOUT_STATES } from '../rollout.ts'

const figure = (description: string) => Type.Union([Type.Number(), Type.Null()], { description })
const RolloutArm = Type.Object({
  requests: count,
  errors: count,
  first_token_ms: figure('Geometric mean; null: not known yet.'),
  tokens_per_second: figure('Geometric mean; null: not known yet.'),
  cost: figure(
    'USD per request, as a geometric mean over requests that cost something; null: not known yet.',
  ),
  judged: Type.Integer({ minimum: 0, description: 'Answers that the judge has seen.' }),
  unaccepted: Type.Integer({ minimum: 0, description: 'Answers that the judge did not accept.' }),
})

const RolloutShadow = Type.Object({
  share: Type.Number({
    minimum: 0,
    maximum: ALL_PERCENT,
    description: "Per cent of the route's requests that are also sent to the candidate.",
  }),
  requests: count,
  spent_usd: Type.Number({
    minimum: 0,
    description: 'What shadows and their judge have cost, with what those under way may still cost.',
  }),
  budget_usd: Type.Number({ minimum: 0 }),
  is_spent: Type.Boolean({ description: 'True if no more shadows are sent, because the budget is spent.' }),
})

export const RolloutAnswer = Type.Object({
  route: Type.String({ description: 'The name of the route.' }),
  candidate: Type.String({ description: 'The model that is tried.' }),
  state: oneOf(...ROLLOUT_STATES),
  step: Type.Integer({ minimum: 0, description: 'The index in the configured steps, from 0.' }),
  share: Type.Number({
    minimum: 0,
    maximum: ALL_PERCENT,
    description: "Per cent of the route's requests that go to the candidate.",
  }),
  reason: Type.String({ description: 'The reason for the current state, as text.' }),
  arms: Type.Object(
    {
      base: RolloutArm,
      candidate: RolloutArm,
      shadowed: Type.Optional(RolloutArm),
      shadow: Type.Optional(RolloutArm),
    },
    {
      description:
        'The figures of the arms at this step; `shadowed` are the requests that were also sent to the candidate, and `shadow` those of the candidate for them.',
    },
  ),
  shadow: Type.Union([RolloutShadow, Type.Null()], { description: 'Null: the rollout has no shadows.' }),
})
export type RolloutAnswer = Static<typeof RolloutAnswer>
