/** Settings for documents in requests: links, PDF and OCR. Pure. */
import { Type } from '@sinclair/typebox'
import { group, Milliseconds, ModelName, nullable, Slug, setting } from '../../base/settings/setting.ts'

export const filesSettings = group({
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
      Type.Integer({ minimum: 1, maximum: 52_428_800 }),
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
