/** Settings of plugins: the models that they call, links, PDF and OCR. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import {
  Address,
  type Frozen,
  group,
  Milliseconds,
  ModelName,
  nullable,
  Slug,
  setting,
} from '../../base/settings/setting.ts'
import { DOCUMENT_MAX_BYTES } from '../../protocol/limits.ts'

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

export const documentSettings = group({
  links: group({
    enabled: setting(
      Type.Boolean(),
      'false: the [file-parser plugin](plugins.md) does not follow links to documents',
      { default: true },
    ),
    allowHttp: setting(Type.Boolean(), 'true: plain HTTP to public addresses is also allowed', {
      default: false,
    }),
    allowPrivate: setting(
      Type.Boolean(),
      'true: any address and port is allowed, also over HTTP, and the system resolves names (hosts file, search domains). Every caller with a key can then make the gateway read from addresses in your internal network: use it only if you trust all callers',
      { default: false },
    ),
    maxBytes: setting(
      Type.Integer({ minimum: 1, maximum: DOCUMENT_MAX_BYTES }),
      'maximum size of one document; a thread keeps at most 16 times as much in memory',
      { default: 10_485_760 },
    ),
    timeoutMs: setting(
      Milliseconds,
      'time limit for one link, including name lookup, redirects and download',
      { default: 10_000 },
    ),
  }),
  pdf: group({
    timeoutMs: setting(
      Milliseconds,
      'time limit for reading one document with the `pdf-text` engine, once a worker has started. Two thousand pages take less than half of the default',
      { default: 5_000 },
    ),
  }),
  ocr: nullable(
    group({
      provider: setting(
        Slug,
        'the provider (a row of `providers`, with its `baseUrl` and `apiKey`) that reads documents for the `mistral-ocr` engine; without it, requests that name the engine are refused',
      ),
      model: setting(ModelName, 'the OCR model at that provider, for instance `mistral-ocr-latest`'),
      timeoutMs: setting(
        Milliseconds,
        'time limit for the first byte of its answer, which takes a minute for a long scan',
        { default: 120_000 },
      ),
    }),
  ),
})

export interface AlignmentSettings extends Frozen<Static<typeof alignmentSettings>> {}

export interface RouterSettings extends Frozen<Static<typeof routersSettings>> {}

export interface DocumentSettings extends Frozen<Static<typeof documentSettings>> {}

export type ModerationSettings = Frozen<Static<typeof moderationSettings>>

/** The settings that plugins read. */
export interface PluginSettings {
  readonly alignment: AlignmentSettings
  readonly files: DocumentSettings
  readonly moderation: ModerationSettings
  readonly routers: RouterSettings
}
