"""The filter server: functions of users choose messages beside the broker, in processes of their own."""
