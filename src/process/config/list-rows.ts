/** Schemas of the rows in `tools.webSearch.engines`, `alerts` and `export` in the configuration file. Pure. */
import { type Static, Type } from '@sinclair/typebox'
import { closed, type Frozen, field, oneOf, required } from '../../base/settings/setting.ts'

/** APIs of search engines; src/features/tools/web has a row for each. */
export const SEARCH_ENGINE_KINDS = ['exa', 'parallel', 'firecrawl', 'perplexity', 'searxng'] as const

const Name = Type.String({ minLength: 1, maxLength: 128 })
const File = Type.String({ minLength: 1 })
const Fee = Type.String({
  pattern: '^\\d{1,3}(\\.\\d{1,12})?$',
  expected: 'a price in quotes, in US dollars, such as "0.005"',
})

export const SearchEngineSchema = Type.Object(
  {
    name: required(
      Type.String({ pattern: '^[a-z0-9][a-z0-9._-]{0,63}$' }),
      'for `tools.webSearch.default`, and for error messages',
    ),
    kind: required(
      oneOf(SEARCH_ENGINE_KINDS),
      'the API that it uses; `engine` in a request selects the first row of that kind',
    ),
    baseUrl: field(
      Type.String({
        pattern: '^https?://[^\\s?#]+$',
        expected: 'an http or https URL without query and fragment',
      }),
      'default: the public address of the kind; required for `searxng`',
    ),
    apiKey: field(
      Type.String({ pattern: '^[\\x21-\\x7e]{1,512}$' }),
      'sent only in a header; required for every kind except `searxng`',
    ),
    searchPrice: field(Fee, 'USD per search; default: the public price of the kind and the mode'),
    pagePrice: field(Fee, 'USD per page that web fetch reads with it; default: the public price of the kind'),
  },
  closed,
)

export interface SearchEngineRow extends Frozen<Static<typeof SearchEngineSchema>> {}

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
  'gateway.overloaded',
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
