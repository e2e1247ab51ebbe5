import { download } from '../../limits.mjs';

export const loader = ({ request }) => download(request);
