/** Settings that exist only as environment variables: the log level, proxies, master keys, first keys. Pure. */
import { Type } from '@sinclair/typebox'
import { LOG_LEVELS } from '../../base/log/log.ts'
import { nullable, oneOf, setting } from '../../base/settings/setting.ts'
import { masterKeys, proxySettings } from '../../providers/settings.ts'

export const environmentSettings = {
  logLevel: setting(oneOf(LOG_LEVELS), 'the lowest level that is logged', {
    default: 'info',
    env: 'LOG_LEVEL',
    environmentOnly: true,
  }),
  ...proxySettings,
  managementKey: setting(
    nullable(Type.String()),
    'management key in plain text, added to the store at start unless it is already there or was deleted',
    { env: 'GATEWAY_MANAGEMENT_KEY', secret: true, environmentOnly: true },
  ),
  apiKey: setting(nullable(Type.String()), 'API key in plain text, added in the same way', {
    env: 'GATEWAY_API_KEY',
    secret: true,
    environmentOnly: true,
  }),
  vaultKeys: masterKeys,
  providerKeys: setting(
    Type.Record(Type.String(), Type.String()),
    'provider keys from the variables in the built-in table and from the files of `apiKeyFile`, by slug',
    { default: {}, environmentOnly: true },
  ),
}
