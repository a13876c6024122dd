/** Settings of captures. Pure. */
import { Type } from '@sinclair/typebox'
import { group, setting } from '../../base/settings/setting.ts'

export const captureSettings = group({
  enabled: setting(
    Type.Boolean(),
    'true: management keys may have the requests of one API key or workspace [captured](captures.md) for a few minutes, in sealed files below the data folder',
    { default: false },
  ),
  maxBytes: setting(
    Type.Integer({ minimum: 65_536, maximum: 10_737_418_240 }),
    'maximum size of one capture, counting the files of all nodes',
    { default: 104_857_600 },
  ),
})
