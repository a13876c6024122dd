/** Settings of the models that the gateway itself calls: judges, classifiers and panels. Pure. */
import { Type } from '@sinclair/typebox'
import { Address, group, Milliseconds, ModelName, nullable, setting } from '../../base/settings/setting.ts'

/** Models of a panel: the interface allows no more in a request. */
const PANEL_MAX = 8

export const alignmentSettings = group({
  evaluator: nullable(
    group({
      model: setting(
        Address,
        'the model in the catalogue that judges for the [alignment plugin](plugins.md); if unset, requests with the plugin are refused',
      ),
    }),
  ),
  hipaaWorkspaces: setting(
    Type.Array(Address, { maxItems: 10_000 }),
    'ids of workspaces under HIPAA. Their requests with the alignment plugin are refused with 403, because their messages must not be sent to a second model',
    { default: [] },
  ),
  timeoutMs: setting(
    Milliseconds,
    'time limit for judging one message, which takes a short answer from a small model. The caller may have to wait this much longer',
    { default: 5_000 },
  ),
})

export const moderationSettings = nullable(
  group({
    model: setting(
      Address,
      'the model in the catalogue that judges for the [moderation plugin](plugins.md); if unset, requests with the plugin are refused',
    ),
  }),
)

export const routersSettings = group({
  classifier: nullable(
    group({
      model: setting(
        Address,
        'a small model in the catalogue that classifies tasks for the [routers](routers.md) and judges for `nvidia/switchyard`. Without it, the routers use built-in weights, and `nvidia/switchyard` uses its capable model',
      ),
    }),
  ),
  rankings: setting(
    nullable(Address),
    'a JSON file of [rankings](routers.md#rankings) to use instead of the shipped one; the path is relative to the working directory. Read at start',
  ),
})

export const fusionSettings = group({
  panel: setting(
    Type.Array(ModelName, { maxItems: PANEL_MAX }),
    'models in the catalogue that answer in a [fusion](fusion.md) if the request names none; empty: the three most expensive models in the catalogue, from different vendors if possible',
    { default: [] },
  ),
  budgetPanel: setting(
    Type.Array(ModelName, { maxItems: PANEL_MAX }),
    'the same for the preset `general-budget`; empty: the three cheapest models that cost something',
    { default: [] },
  ),
  fastPanel: setting(
    Type.Array(ModelName, { maxItems: PANEL_MAX }),
    'the same for the preset `general-fast`; empty: the three cheapest models that cost something, since small models are fast',
    { default: [] },
  ),
  analyst: setting(
    nullable(ModelName),
    'the model that compares the answers, and also writes the answer of `gateway/fusion`; null: the outer model compares, and the first panel model writes',
  ),
})
