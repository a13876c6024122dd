/** Schemas of the rows in `alerts`, `export` and `reconcile` in the configuration file. Pure. */
import { Type } from '@sinclair/typebox'
import { closed, field, oneOf, required } from '../../base/settings/setting.ts'

const Name = Type.String({ minLength: 1, maxLength: 128 })
const File = Type.String({ minLength: 1 })
/** Types of alerts, and the forms of their bodies; src/process/alerts has a meaning for each. */
export const ALERT_EVENTS = [
  'budget.80',
  'budget.100',
  'credits.low',
  'key.expiring',
  'certificate.expiring',
  'provider.down',
  'provider.up',
  'errors.burning',
  'ledger.behind',
  'ledger.drift',
  'loop.detected',
  'gateway.overloaded',
  'rollout.promoted',
  'rollout.rolled_back',
] as const
export const ALERT_FORMATS = ['json', 'slack'] as const

/** A row of `alerts`. */
export const AlertReceiver = Type.Object(
  {
    url: field(Type.String({ pattern: '^https?://' }), 'where alerts are sent'),
    urlFile: field(File, 'a file with the address, if the address is a secret, as with Slack'),
    secretFile: field(
      File,
      'a file with the secret that signs requests; two lines while a new secret replaces the old one',
    ),
    format: field(oneOf(ALERT_FORMATS), '`json` (the default), or `slack`, which sends only `text`'),
    events: field(
      Type.Array(oneOf(ALERT_EVENTS), { minItems: 1 }),
      'the events that the receiver gets; default: all',
    ),
    allowPrivate: field(Type.Boolean(), 'true: allows private addresses and plain HTTP'),
  },
  closed,
)

/** A row of `export`. */
export const ExportSchema = Type.Object(
  {
    url: required(
      Type.String({
        pattern: '^(?:file:.|s3://[a-z0-9]|https?://)',
        expected: 'file:FOLDER, s3://BUCKET/PREFIX or https://…',
      }),
      '`file:FOLDER`, `s3://BUCKET/PREFIX`, or an address that accepts POST',
    ),
    format: field(oneOf(['jsonl'] as const), '`jsonl`: one record per line'),
    everyMs: field(
      Type.Integer({ minimum: 100, maximum: 86_400_000 }),
      'time between two objects; default one minute',
    ),
    maxWaitingBytes: field(
      Type.Integer({ minimum: 1_048_576, maximum: Number.MAX_SAFE_INTEGER }),
      'bytes that wait on the disk while the destination is unreachable; later records are dropped from the export, as the log and a metric show. Default 4 GiB',
    ),
    endpoint: field(Type.String({ pattern: '^https?://' }), 'address of a bucket service other than AWS'),
    region: field(Name, 'region of the bucket; default `us-east-1`'),
    accessKeyIdFile: field(File, 'a file with the id of the access key; required with s3://'),
    secretAccessKeyFile: field(File, 'a file with the secret access key; required with s3://'),
    secretFile: field(File, 'a file with the secret that signs requests, as for alerts'),
  },
  closed,
)

/** The usage reports that the gateway can request; src/process/reconcile/reports.ts has a reader for each. */
export const REPORT_NAMES = ['openai', 'anthropic', 'openrouter'] as const

/** A row of `reconcile`. */
export const ReconcileSchema = Type.Object(
  {
    provider: required(Name, 'the slug of a provider'),
    keyFile: field(
      File,
      'a file with an administration key of the provider, which reads its usage reports and serves no requests',
    ),
    csvFile: field(
      File,
      'instead: a CSV file with the columns `date`, `model`, and `cost_usd` or tokens, for a provider without a report',
    ),
    report: field(
      oneOf(REPORT_NAMES),
      'the form of the report, if the provider has another slug than the service it is',
    ),
  },
  closed,
)
